"""Ask OldHost for the nonce it expects: after an ambiguous end only this decides (docs/protocol.md)."""

from __future__ import annotations

from oldhost_sync.oldhost.connection import Clock, Heartbeat, HostConnection
from oldhost_sync.oldhost.limits import SessionLimits
from oldhost_sync.oldhost.refused_request import RefusedRequest
from oldhost_sync.oldhost.reply_timeout import ReplyTimeout
from oldhost_sync.oldhost.retry_after import told_by_header
from oldhost_sync.oldhost.wire import (
    Ambiguous,
    Banned,
    Busy,
    ConnectionInUse,
    Expected,
    OutOfRange,
    encode_ask,
    read_ask,
)

Told = Expected | OutOfRange | Banned | Busy | ConnectionInUse | RefusedRequest


def ask(
    connection: HostConnection, limits: SessionLimits, beat: Heartbeat, clock: Clock, reply_timeout: ReplyTimeout
) -> Told:
    """Ask once, with the full request timeout; raises HostErrors. The answer's time counts for the reply timeout."""
    began = clock()
    connection.begin(
        encode_ask(connection.authority), timeout_seconds=limits.request_timeout_seconds, while_waiting=beat
    )
    response = connection.finish(while_waiting=beat)
    reply_timeout.answered(clock() - began, operation=False)
    answer = read_ask(response.status, response.body)
    if isinstance(answer, Ambiguous):
        return RefusedRequest(response.status, response.seconds_asked)
    return told_by_header(answer, response.seconds_asked)
