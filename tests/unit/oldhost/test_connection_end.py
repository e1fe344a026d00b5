"""Why a connection ended: each cause has a reason and a sentence of its own."""

from __future__ import annotations

from oldhost_sync.drivers.events import ConnectionEnd
from oldhost_sync.oldhost.refusals import why_hung_up


def test_each_way_to_end_a_connection_after_one_answer_is_told_apart() -> None:
    told = {ending: why_hung_up(ending, 1) for ending in ConnectionEnd}
    assert told.pop(ConnectionEnd.STRAY)[0] == "unreadable"
    assert told.pop(ConnectionEnd.NONE) == told[ConnectionEnd.QUIET]
    assert {reason for reason, _ in told.values()} == {"keep-alive"}
    assert len({why for _, why in told.values()}) == len(told)


def test_a_host_that_gives_several_answers_first_does_not_lack_keep_alive() -> None:
    assert why_hung_up(ConnectionEnd.QUIET, 2) == ("connection", "OldHost closed the connection after 2 answers")
    assert why_hung_up(ConnectionEnd.ANNOUNCED, 2)[0] == "keep-alive"
