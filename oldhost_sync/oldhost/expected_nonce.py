"""Ask OldHost for the nonce it expects: after an ambiguous end only this decides (docs/protocol.md)."""

from __future__ import annotations

from oldhost_sync.oldhost.connection import Clock, Heartbeat, HostConnection
from oldhost_sync.oldhost.limits import SessionLimits
from oldhost_sync.oldhost.reply_timeout import ReplyTimeout
from oldhost_sync.oldhost.wire import AskAnswer, encode_ask, read_ask


def ask(
    connection: HostConnection, limits: SessionLimits, beat: Heartbeat, clock: Clock, reply_timeout: ReplyTimeout
) -> AskAnswer:
    """Ask once, with the full request timeout; raises HostErrors. The answer's time counts for the reply timeout."""
    began = clock()
    connection.begin(
        encode_ask(connection.authority), timeout_seconds=limits.request_timeout_seconds, while_waiting=beat
    )
    response = connection.finish(while_waiting=beat)
    reply_timeout.answered(clock() - began, operation=False)
    return read_ask(response.status, response.body)
