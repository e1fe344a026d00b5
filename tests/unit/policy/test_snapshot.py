"""The snapshot: what is carried is all there is, in few bytes."""

from __future__ import annotations

import base64
import json
import zlib
from random import Random
from uuid import UUID

import pytest

from oldhost_sync.policy.changes import ChangeRef, EntityKey, PriorityClass
from oldhost_sync.policy.machine import operators, snapshot
from oldhost_sync.policy.machine.actions import LoadOutstanding
from oldhost_sync.policy.machine.conditions import Reports
from oldhost_sync.policy.machine.events import OpeningPostponed
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.policy.machine.session import Phase
from oldhost_sync.policy.tuning import CARRIED_MAX, WriterPolicy
from tests.unit.policy.play import START_MS, Play
from tests.workflows.books import Reply


def carried(machine: Machine, policy: WriterPolicy | None = None) -> Machine:
    """Through JSON, as Temporal carries it."""
    return snapshot.load(json.loads(json.dumps(snapshot.dump(machine))), policy or WriterPolicy(), START_MS)


def busy_play() -> Play:
    """A bit of everything: debounced, in lanes, bound, in doubt, held, dead, banned once, paused."""
    play = Play()
    play.end_open()
    play.take("TXN", "dead")
    play.end_send(1, lambda _: Reply.REJECTED)
    play.take("TXN", "dead")
    play.take("TXN", "banned")
    play.end_send(2, lambda _: Reply.BAN)
    play.advance(10_000)
    play.take("LWW", "debounced")
    play.take("LWW", "banned")
    play.take("EMERGENCY", "waiting")
    operators.pause(play.machine, "ana", "a look")
    return play


def test_a_snapshot_of_a_loaded_snapshot_is_the_same() -> None:
    play = busy_play()
    assert snapshot.dump(carried(play.machine)) == snapshot.dump(play.machine)


def test_what_waits_waits_on_at_the_same_times() -> None:
    play = busy_play()
    assert carried(play.machine).coalescer.waiting == play.machine.coalescer.waiting


def of_properties() -> Machine:
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    for number, property_id in enumerate(["", "seaview", "hilltop", "seaview"], 1):
        machine.enqueue([ChangeRef(number, PriorityClass.TXN, "unit", f"u{number}", "e", START_MS, property_id)], 0)
    return machine


def test_properties_are_carried() -> None:
    machine = of_properties()
    assert carried(machine).coalescer.waiting == machine.coalescer.waiting


def test_where_no_property_is_known_the_snapshot_has_no_column_for_it() -> None:
    machine = Machine(WriterPolicy(), START_MS)
    machine.enqueue([txn(1, "u")], START_MS)
    assert len(json.loads(snapshot.dump(machine)["waiting"])) == 10


def test_holds_are_carried() -> None:
    play = busy_play()
    loaded = carried(play.machine)
    assert loaded.coalescer.holds == play.machine.coalescer.holds
    assert loaded.coalescer.held_count == 1


def test_what_is_in_doubt_stays_in_doubt_and_in_flight() -> None:
    loaded = carried(busy_play().machine)
    assert loaded.in_flight.in_doubt == [3]
    assert [entry.ref.entity_id for entry in loaded.in_flight] == ["banned"]


def test_a_ban_is_carried_with_its_end() -> None:
    play = busy_play()
    assert carried(play.machine).breaker == play.machine.breaker


def test_a_pause_is_carried() -> None:
    paused = carried(busy_play().machine).paused
    assert paused is not None
    assert paused.operator == "ana"


def test_an_open_session_is_carried_and_used() -> None:
    play = Play()
    play.end_open()
    play.carry_over()
    play.take("TXN", "u")
    assert play.machine.session.phase is Phase.OPEN
    assert [send.change_ids for send in play.under.sends.values()] == [(1,)]


def test_sends_go_on_counting_in_a_carried_session() -> None:
    play = Play()
    play.end_open()
    play.take("TXN", "u")
    play.carry_over()
    play.take("TXN", "u")
    assert [send.sequence for send in play.under.sends.values()] == [2, 3]


def test_a_new_policy_holds_for_what_was_carried() -> None:
    loaded = carried(Play().machine, WriterPolicy(ban_ms=5_000))
    assert loaded.breaker.ban_ms == 5_000


@pytest.mark.parametrize("version", [None, 0, "1", snapshot.VERSION + 1])
def test_an_unknown_version_is_rebuilt_from_mariadb(version: object) -> None:
    loaded = snapshot.load({"version": version}, WriterPolicy(), START_MS)
    assert not loaded.loaded


def test_a_run_reads_no_version_newer_than_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of its own release, which may continue it, can't read it either."""
    monkeypatch.setattr(snapshot, "VERSION", RELEASE + 1)
    dumped = snapshot.dump(busy_play().machine)
    assert not snapshot.load(dumped, WriterPolicy(), START_MS, release=RELEASE).carried
    assert snapshot.load(dumped, WriterPolicy(), START_MS, release=RELEASE + 1).carried


def test_the_snapshot_s_version_is_that_of_a_release() -> None:
    assert snapshot.VERSION in range(1, RELEASE + 1)


@pytest.mark.parametrize(
    "entity_id",
    [
        "0e984725-c51c-4bf4-9960-e1c80e27aba0",
        "0E984725-C51C-4BF4-9960-E1C80E27ABA0",
        "0e984725c51c4bf49960e1c80e27aba0",
        "0e98472-5c51c-4bf4-9960-e1c80e27aba0",
        "0e984725-c51c-4bf4-9960-e1c80e27abag",
        "0e984725-c51c-4bf4-9960-e1c80e27aba0\n",
        "u-1",
    ],
)
def test_an_entity_id_comes_back_as_it_was_whether_or_not_it_looks_like_a_uuid(entity_id: str) -> None:
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    machine.enqueue([txn(1, "before"), txn(2, entity_id), txn(3, "after")], START_MS)
    assert [entry.ref.entity_id for entry in carried(machine).coalescer.waiting.values()] == [
        "before",
        entity_id,
        "after",
    ]


@pytest.mark.slow
def test_as_many_waiting_uuids_as_are_carried_fit_into_half_a_megabyte() -> None:
    chance = Random(1)
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    ids = (str(UUID(int=chance.getrandbits(128))) for _ in range(CARRIED_MAX))
    machine.enqueue([txn(number, entity_id) for number, entity_id in enumerate(ids, start=1)], START_MS)
    text = json.dumps(snapshot.dump(machine)).encode()
    assert len(zlib.compress(text, snapshot.COMPRESSION_LEVEL)) < 500_000
    assert carried(machine).loaded


def test_no_snapshot_is_a_first_start() -> None:
    assert not snapshot.load(None, WriterPolicy(), START_MS).loaded


@pytest.mark.slow
def test_what_is_too_large_stays_behind_and_is_read_again() -> None:
    """However long the ids, a snapshot never comes near the 2 MiB at which Temporal stops for ever."""
    refs = [txn(number, entity_id) for number, entity_id in enumerate(long_ids(CARRIED_MAX))]
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    machine.enqueue(refs, START_MS)
    operators.pause(machine, "ana", "too much")
    loaded = carried(machine)
    assert (
        len(zlib.compress(json.dumps(snapshot.dump(machine)).encode(), snapshot.COMPRESSION_LEVEL))
        < snapshot.WAITING_BYTES_MAX
    )
    assert not loaded.loaded
    assert loaded.paused == machine.paused
    loaded.enqueue(refs, START_MS, sweep=True)
    loaded.finish_loading(START_MS)
    assert loaded.counters == machine.counters
    assert loaded.coalescer.waiting == machine.coalescer.waiting


def test_holds_too_large_to_carry_stay_behind_too() -> None:
    machine = Machine(WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    for number, entity_id in enumerate(long_ids(CARRIED_MAX)):
        machine.outcomes.hold(EntityKey("unit", entity_id), [number + 1])
    assert len(carried(machine).coalescer.holds) == 0
    assert not carried(machine).loaded


@pytest.mark.slow
def test_fifty_thousand_waiting_keys_are_less_than_a_megabyte() -> None:
    machine = Machine(WriterPolicy(), START_MS)
    refs = (
        ChangeRef(
            3 * n + 7, PriorityClass.LWW, "unit", f"unit-{n * 7919 % 50_000:05}", "unit_status_changed", START_MS + n
        )
        for n in range(50_000)
    )
    assert machine.enqueue(refs, START_MS) == 50_000
    assert len(zlib.compress(json.dumps(snapshot.dump(machine)).encode(), snapshot.COMPRESSION_LEVEL)) < 1_000_000


def long_ids(count: int) -> list[str]:
    """Half as long as ids may be, and nothing that a compressor could use."""
    random = Random(1)
    return [base64.urlsafe_b64encode(random.randbytes(48)).decode() for _ in range(count)]


def txn(number: int, entity_id: str) -> ChangeRef:
    return ChangeRef(number + 1, PriorityClass.TXN, "unit", entity_id, "booking", START_MS)


def test_people_are_not_told_that_emergencies_go_while_a_new_run_reads_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "CARRIED_MAX", 0)
    old = Machine(WriterPolicy(), START_MS)
    old.finish_loading(START_MS)
    old.decide(START_MS)
    old.opening_ended(OpeningPostponed(WriterPolicy().ban_ms, "ban"), START_MS)
    emergency = ChangeRef(1, PriorityClass.EMERGENCY, "unit", "u", "e", START_MS)
    old.enqueue([emergency], START_MS)
    old.decide(START_MS)
    reports = Reports(old)
    (before,) = reports.due(START_MS)
    reports.recorded()
    new = carried(old)
    reports = Reports(new, json.loads(json.dumps(reports.dump())))
    new.decide(START_MS)
    assert reports.due(START_MS) == []
    new.took_page(LoadOutstanding(Part.EMERGENCIES, 0), [emergency], 1, False, START_MS)
    new.decide(START_MS)
    assert [each.cause for each in before.conditions] == ["ban", "emergencies:ban"]
    assert reports.due(START_MS) == []


def test_a_run_that_begins_on_a_clock_set_back_waits_no_longer_for_it() -> None:
    play = busy_play()
    behind_ms = 7_200_000
    given = json.loads(json.dumps({**snapshot.dump(play.machine), "at_ms": play.now_ms}))
    now_ms = play.now_ms - behind_ms
    machine = snapshot.load(given, WriterPolicy(), now_ms)
    dues = {change_id: entry.due_at_ms for change_id, entry in play.machine.coalescer.waiting.items()}
    assert {change_id: entry.due_at_ms + behind_ms for change_id, entry in machine.coalescer.waiting.items()} == dues
    assert machine.session.until_ms + behind_ms == play.machine.session.until_ms
    assert machine.breaker.until_ms + behind_ms == play.machine.breaker.until_ms
