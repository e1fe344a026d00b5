"""The pace of connections to a host that refuses, in virtual time."""

from __future__ import annotations

from oldhost_sync.drivers.events import NoService
from oldhost_sync.oldhost.refusals import ConnectionPace

REFUSAL = NoService("refused", "status 503")


def connections(pace: ConnectionPace, seconds: float, *, operation: bool) -> list[float]:
    """When a caller connects that always comes as soon as it may, and is always refused."""
    now, made = 0.0, []
    while now < seconds:
        early = pace.postpones(now)
        if early is not None:
            now += early.wait_ms / 1000
            continue
        made.append(now)
        pace.answered(operation=False) if operation else None
        pace.refused(now, REFUSAL, 900.0, operation=operation)
    return made


def test_a_host_that_refuses_questions_gets_six_connections_a_minute_at_most() -> None:
    made = connections(ConnectionPace(), 600.0, operation=False)
    assert made[:7] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0]
    assert max(sum(at <= other < at + 60 for other in made) for at in made) == 6


def test_answered_questions_do_not_shorten_the_pauses_after_refused_operations() -> None:
    assert connections(ConnectionPace(), 50.0, operation=True) == [0.0, 0.0, 12.5, 25.0, 37.5]


def test_an_answered_operation_ends_the_pauses() -> None:
    pace = ConnectionPace()
    pace.refused(0.0, REFUSAL, 900.0, operation=True)
    pace.answered(operation=True)
    assert pace.postpones(0.0) is None
    assert not pace.is_operation_refused
    pace.refused(0.0, REFUSAL, 0.0, operation=True)
    assert pace.postpones(0.0) is None


def test_what_the_host_asks_for_is_the_least_pause_up_to_a_limit() -> None:
    pace = ConnectionPace()
    assert pace.refused(0.0, NoService("refused", "status 429", 0.0), 900.0).wait_ms == 1_000
    assert pace.refused(0.0, NoService("refused", "status 429", 120.0), 900.0).wait_ms == 120_000
    assert pace.refused(0.0, NoService("refused", "status 429", 0.0), 900.0).wait_ms == 120_000
    assert pace.refused(0.0, NoService("refused", "status 429", 86_400.0), 900.0).wait_ms == 900_000
