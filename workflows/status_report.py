"""What the writer shows of itself: answers of its queries, the table in Temporal's UI, its state in the UI's list.

Reads the machine, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from oldhost_sync.policy.changes import ChangeRef, EntityKey, PriorityClass
from oldhost_sync.policy.forecast.outlook import Outlook
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.progress import STATES
from oldhost_sync.policy.machine.session import BreakerState, Phase, SessionState
from oldhost_sync.policy.plain_text import plain_markdown
from oldhost_sync.policy.queue.coalescer import upcoming as next_operations
from oldhost_sync.policy.queue.operations import PendingOperation

# At most this many changes of one entity are in an answer: while it is built, the writer does nothing else.
FOUND_MAX = 200
IN_FLIGHT, IN_LANE, DEBOUNCED = "in flight", "in its lane", "debounced"
_WAITS_FOR = {
    IN_FLIGHT: "OldHost's answer",
    IN_LANE: "its turn",
    DEBOUNCED: "the debounce to end",
}
NEXT_STEPS = {
    "HALTED": "compare OldHost with the ledger, then `resolve` (docs/operations.md)",
    "PAUSED": "`resume` when the reason is gone",
    "BANNED": "none: it goes on by itself when the ban is over",
    **dict.fromkeys(STATES.values(), "see what OldHost answers, and whether something stands between"),
}
HOST = SearchAttributeKey.for_keyword("SyncHost")
STATE = SearchAttributeKey.for_keyword("SyncState")
LISTED = ("HALTED", "PAUSED", "BANNED", *STATES.values())


def status(machine: Machine, host: str, now_ms: int) -> dict[str, Any]:
    """Counts, ages and waits in ms; rates per second; the machine's own counters since its first start."""
    session = machine.session
    return {
        "host": host,
        "state": state(machine),
        "release": machine.release,
        "paused": _pause(machine, now_ms),
        "breaker": {
            "state": machine.breaker.state.value,
            "reason": machine.breaker.reason,
            "remaining_ms": machine.banned_ms(now_ms),
        },
        "session": {
            "phase": session.phase.value,
            "epoch": session.epoch,
            "task_queue": session.task_queue,
            "opened_at_nonce": session.opened_at_nonce if session.phase is Phase.OPEN else None,
            "waiting_for": _waiting_for(session),
        },
        "lanes": {cls.value: _lane(machine, cls, now_ms) for cls in machine.coalescer.lanes},
        "debounced": machine.coalescer.debounced_count,
        "waiting": len(machine.coalescer.waiting),
        "held": machine.coalescer.held_count,
        "apart": len(machine.coalescer.parked),
        "dead_letters": machine.outcomes.dead_letters,
        "in_flight": len(machine.in_flight),
        "in_doubt": len(machine.in_flight.in_doubt),
        "rates": {
            "arrivals_per_s": round(machine.load.arrivals_per_s, 3),
            "applied_per_s": round(machine.load.applied_per_s, 3),
            "service_ms": round(machine.load.service_ms, 1),
        },
        "forecast": _forecast(machine, now_ms),
        "counters": vars(machine.counters).copy(),
    }


def _waiting_for(session: SessionState) -> str:
    """Why there is no session yet; after a failed opening also while the next one is tried."""
    tries = session.phase is Phase.OPENING and session.attempts > 0
    return session.waiting_for if session.phase is Phase.PAUSING or tries else ""


def _forecast(machine: Machine, now_ms: int) -> dict[str, Any]:
    forecast = machine.load.forecast(machine.coalescer, machine.blocked_ms(now_ms), now_ms)
    return asdict(forecast) | {"breaks_emergency": forecast.breaks_emergency or forecast.late_emergencies > 0}


# Of a host in another state nobody knows when it will be told of anything; of a pause, if it ends by itself.
FORESEEN = ("SENDING", "BANNED", "CONNECTING", "RENEWING")


def outlook(machine: Machine, now_ms: int) -> dict[str, Any] | None:
    """When a change that is accepted now will reach OldHost (see `Outlook`); None while nobody can know."""
    known = machine.pause_left_ms(now_ms) is not None if machine.paused else state(machine) in FORESEEN
    if not known or _waiting_for(machine.session):
        return None
    load, coalescer = machine.load, machine.coalescer
    backlog = load.backlog(coalescer, machine.blocked_ms(now_ms))
    sent, ready = len(machine.in_flight), coalescer.turns.waiting
    return Outlook.of(backlog, load.arrivals, machine.policy, now_ms, sent, ready).to_json()


def _pause(machine: Machine, now_ms: int) -> dict[str, Any] | None:
    """`remaining_ms` None: until somebody resumes."""
    if machine.paused is None:
        return None
    by = {"operator": machine.paused.operator, "reason": machine.paused.reason}
    return by | {"remaining_ms": machine.pause_left_ms(now_ms)}


def state(machine: Machine) -> str:
    """The writer's state in one word, for people."""
    if not machine.loaded:
        return "REBUILDING"
    if machine.breaker.state.value == "HALTED":
        return "HALTED"
    if machine.paused:
        return "PAUSED"
    if machine.breaker.state.value == "OPEN":
        return "BANNED"
    if machine.draining:
        return "RENEWING"
    if machine.progress.state:
        return machine.progress.state
    return "SENDING" if machine.session.phase is Phase.OPEN and not machine.session.lost else "CONNECTING"


def listed_state(machine: Machine) -> str:
    """The state for Temporal's list, which shows lasting ones only: connecting and the like pass within seconds."""
    shown = state(machine)
    return shown if shown in LISTED else "SENDING"


def find(machine: Machine, entity: EntityKey, now_ms: int) -> dict[str, Any]:
    """Where the entity's changes are: debounced, in their lane, or in flight. `held`: how many more wait in MariaDB
    behind its dead letters, as far as the writer has seen them. The oldest FOUND_MAX are listed; `count` counts all.
    """
    hold = machine.coalescer.holds.get(entity)
    oldest = machine.coalescer.entries_of(entity, FOUND_MAX)
    stops = ", ".join(_stops(machine, now_ms))
    changes = [_where(entry, IN_FLIGHT, stops, now_ms) for entry in machine.in_flight if entry.ref.entity == entity]
    count = len(changes) + machine.coalescer.count_of(entity)
    pause = _pause_of(machine, entity)
    changes += [_where(entry, _place_of(entry), stops, now_ms, pause) for entry in oldest]
    return {
        "entity_type": entity.entity_type,
        "entity_id": entity.entity_id,
        "changes": sorted(changes, key=lambda change: change["change_id"])[:FOUND_MAX],
        "count": count,
        "dead_letters": hold.dead[:FOUND_MAX] if hold else [],
        "held": hold.left if hold else 0,
    }


def upcoming(machine: Machine, count: int, now_ms: int) -> list[dict[str, Any]]:
    """The next operations, if no new change arrives."""
    return [_ref(ref) for ref in next_operations(machine.coalescer, count, now_ms, machine.load.service_ms)]


def details(machine: Machine, now_ms: int) -> str:
    """The table that Temporal's UI shows, in Markdown."""
    lanes = machine.coalescer.lanes
    rows = [
        ("state", state(machine) + (f" ({plain_markdown(machine.breaker.reason)})" if machine.breaker.reason else "")),
        ("EMERGENCY / TXN / LWW ready", " / ".join(str(len(lane)) for lane in lanes.values())),
        ("debounced", machine.coalescer.debounced_count),
        ("held behind dead letters", machine.coalescer.held_count),
        ("entities that wait apart", len(machine.coalescer.parked)),
        ("in flight", len(machine.in_flight)),
        ("applied", machine.counters.applied),
        ("epoch", machine.session.epoch),
        ("nothing is sent until", _blocked_until(machine, now_ms)),
        ("next step", NEXT_STEPS.get(state(machine), "")),
    ]
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)


def _blocked_until(machine: Machine, now_ms: int) -> str:
    left_ms = machine.blocked_ms(now_ms)
    return _time(now_ms + left_ms) if left_ms else ""


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).isoformat(sep=" ")


def _lane(machine: Machine, cls: PriorityClass, now_ms: int) -> dict[str, int]:
    lane = machine.coalescer.lanes[cls]
    oldest = min((machine.coalescer.waiting[change_id].first_at_ms for change_id in lane.change_ids()), default=now_ms)
    return {"depth": len(lane), "oldest_age_ms": max(0, now_ms - oldest)}


def _place_of(entry: PendingOperation) -> str:
    return IN_LANE if entry.ready else DEBOUNCED


def _pause_of(machine: Machine, entity: EntityKey) -> str:
    """What the entity's changes wait for while one of them waits apart; empty if none does."""
    until_ms = machine.coalescer.parked.get(entity)
    if until_ms is None:
        return ""
    return (
        f"the pause until {_time(until_ms)}, since OldHost refused an operation of this entity without using its nonce"
    )


def _where(entry: PendingOperation, place: str, stops: str, now_ms: int, pause: str = "") -> dict[str, Any]:
    """`waits_for`: `stops` if nothing is sent at all, after the change's own reason (a debounce, a pause)."""
    own = pause or _WAITS_FOR[place]
    waits_for = f"{own}, {stops}" if stops and (pause or place == DEBOUNCED) else stops or own
    due_in_ms = max(0, entry.due_at_ms - now_ms)
    return {**_ref(entry.ref), "place": place, "waits_for": waits_for, "due_in_ms": due_in_ms}


def _stops(machine: Machine, now_ms: int) -> Iterator[str]:
    """What has to happen before anything is sent."""
    if machine.breaker.state is BreakerState.HALTED:
        yield "a decision about the halt"
    if machine.paused:
        yield "the pause to end" if machine.paused.until_ms else "somebody to resume"
    if machine.banned_ms(now_ms):
        yield "the ban to end"


def _ref(ref: ChangeRef) -> dict[str, Any]:
    return {
        "change_id": ref.change_id,
        "priority_class": ref.priority_class.value,
        "entity_type": ref.entity_type,
        "entity_id": ref.entity_id,
        "event_type": ref.event_type,
    }


class StateList:
    """The writer's host and state as search attributes: one list in Temporal's UI shows which of fifty writers are
    halted. A run starts with what the previous one has shown.

    If a workflow sets an attribute that is not registered in its namespace, Temporal fails the task, again and again.
    So the writer sets them only after a worker has reported that they are registered
    (`oldhost_sync/temporal/search_attributes.py`).
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._shown = workflow.info().typed_search_attributes.get(STATE)
        self._is_registered = self._shown is not None
        self._logged = self._shown

    def registered(self, is_registered: bool | None) -> None:
        """A worker has reported whether the attributes are registered; None: it does not know."""
        if is_registered is not None:
            self._is_registered = is_registered

    def show(self, state: str) -> None:
        if state != self._logged:
            workflow.logger.info("the writer is %s", state, extra={"host": self._host, "state": state})
            self._logged = state
        if self._is_registered and state != self._shown:
            workflow.upsert_search_attributes([HOST.value_set(self._host), STATE.value_set(state)])
            self._shown = state
