"""A halt for people: what each of the two ways of ending it would do, in numbers, and what was decided already.

It changes nothing. The cases are those of `ledger/halt.py`, which carries a decision out; a test checks that both give
the same numbers. The expected nonce is the one that OldHost last reported: `resolve` asks again, and decides nothing if
it has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import Outcome
from oldhost_sync.policy.plain_text import instant, quantity
from oldhost_sync.store.audit import list_acts
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.ledger.fates import ADOPTED, others_of, used
from oldhost_sync.store.ledger.halt import NOBODY_KNOWS, are_sent_again
from oldhost_sync.store.ledger.statements import CALLED_A_REPLAY
from oldhost_sync.store.record import RECORD, described

# --------------------------------------------------------------------------------------------------------- the decision

# One that the writer has not acted on yet: OldHost can't be asked, or no session was opened since.

# The alert stays open until a session is opened.
_HALT = text(
    "SELECT l.halted, l.resolve_mode, a.created_at FROM nonce_ledger l LEFT JOIN alerts a ON a.host = l.host "
    "AND a.kind = 'halted' AND a.is_open = 1 WHERE l.host = :host ORDER BY a.id LIMIT 1"
).columns(created_at=UtcDateTime())


@dataclass(frozen=True, slots=True)
class HaltDecision:
    """`mode`: adopt or resend."""

    operator: str
    mode: str
    decided_at: datetime

    @property
    def sentence(self) -> str:
        """For people."""
        decided = f"{self.operator} decided about the halt at {instant(self.decided_at)}: {self.mode}."
        return f"{decided} The writer acts on it as soon as it can ask OldHost."


def read_decision(connection: Connection, host: str) -> HaltDecision | None:
    """The decision that is still to be carried out, if there is one."""
    halt = connection.execute(_HALT, {"host": host}).one_or_none()
    if halt is None or (halt.resolve_mode is None and (halt.halted is not None or halt.created_at is None)):
        return None
    for act in list_acts(connection, host, action="resolve", limit=1):
        if halt.resolve_mode is not None or act.created_at >= halt.created_at:
            return HaltDecision(act.operator, (act.detail or {})["mode"], act.created_at)
    return None


# ---------------------------------------------------------------------------------------------------------- the choices

BACK, FORWARD, UNKNOWN_COUNT = "back", "forward", "unknown"
_operations = partial(quantity, one="operation")
OPERATIONS_SHOWN = 50
NONCE_MAX = 2**63 - 1

_LEDGER = text(
    "SELECT next_nonce, last_applied_nonce, epoch, halted, halted_expected_nonce, resolve_mode, count_fell_at, "
    "updated_at FROM nonce_ledger WHERE host = :host"
).columns(updated_at=UtcDateTime())
# By status, so that the index answers and no body is read.
_FROM = text(
    "SELECT COUNT(*) AS operations, MAX(nonce) AS highest FROM nonce_requests FORCE INDEX (ix_nonce_requests_status) "
    "WHERE host = :host AND status IN ('SENT', 'APPLIED', 'FAILED', 'UNSURE') AND nonce >= :nonce"
)
# What is in doubt. `never_taken`: OldHost refused each of its sends. Not so if it was called a replay and is the last
# nonce before the expected one: then it may have been delivered twice.
_IN_DOUBT = text(
    "SELECT r.nonce < :expected AS below, r.sends = 0 AND NOT (r.nonce = :expected - 1 "
    f"AND COALESCE(r.answer, '') = '{CALLED_A_REPLAY}') AS never_taken, r.sends = 0 AS unwritten, "
    f"COALESCE(r.answer, '') = '{CALLED_A_REPLAY}' AS replayed, COUNT(*) AS operations, MAX(r.nonce) AS highest "
    "FROM nonce_requests r FORCE INDEX (ix_nonce_requests_status) WHERE r.host = :host AND r.status = 'SENT' "
    "GROUP BY below, never_taken, unwritten, replayed"
)
# Of those below a nonce: an answer is kept, or another operation had the nonce, too. So they may become dead letters.
_ANSWERED = (
    "SELECT r.nonce, r.change_id, r.mapping, r.sends, r.said_rejects, r.said_send, r.answer, "
    "o.entity_type, o.entity_id, o.event_type, o.priority_class "
    "FROM nonce_requests r FORCE INDEX (ix_nonce_requests_status) "
    "STRAIGHT_JOIN outbox_events o ON o.id = r.change_id WHERE r.host = %s AND r.status = 'SENT' AND r.nonce < %s "
    "AND ((r.sends > 0 AND r.said_send = r.sends) OR EXISTS (SELECT 1 FROM nonce_requests_archive a "
    "WHERE a.host = r.host AND a.nonce = r.nonce AND a.change_id <> r.change_id))"
)
_OPERATIONS = text(
    "SELECT r.nonce, r.change_id, r.status, r.sends, r.sent_at, r.answer, o.entity_type, o.entity_id, o.event_type, "
    "o.priority_class FROM nonce_requests r FORCE INDEX (PRIMARY) LEFT JOIN outbox_events o ON o.id = r.change_id "
    "WHERE r.host = :host AND r.nonce >= :nonce AND r.status IN :statuses ORDER BY r.nonce LIMIT :limit"
)


@dataclass(frozen=True, slots=True)
class OperationAtStake:
    """An operation of the ledger that the decision affects."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "nonce": 501,
        "change_id": 4711,
        "status": "APPLIED",
        "sends": 1,
        "sent_at": "2026-05-01T12:01:01Z",
        "answer": "applied",
        "entity_type": "unit",
        "entity_id": "12B",
        "event_type": "unit_status_changed",
        "priority_class": "LWW",
    }

    nonce: int
    change_id: int
    status: str
    sends: int
    sent_at: datetime | None
    answer: str | None
    entity_type: str | None
    entity_id: str | None
    event_type: str | None
    priority_class: str | None


@dataclass(slots=True)
class Consequences:
    """What one way of ending a halt would do."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "says": "OldHost's count is taken: what it lost (2 operations) is not sent again.",
        "given_up": 2,
        "counted_applied": 0,
        "letters": 0,
        "sent_again": 0,
        "waiting_again": 0,
        "next_nonce": 501,
    }

    says: str
    given_up: int = field(
        default=0, metadata=described("Operations applied in the database, lost at OldHost and not sent again")
    )
    counted_applied: int = field(default=0, metadata=described("Operations in doubt that are counted as applied"))
    letters: int = field(default=0, metadata=described("Operations in doubt that become dead letters"))
    sent_again: int = field(
        default=0, metadata=described("Operations that are sent again byte for byte, with the same nonces")
    )
    waiting_again: int = field(default=0, metadata=described("Operations whose changes wait again and get new nonces"))
    next_nonce: int | None = field(
        default=None, metadata=described("The next nonce after the decision; null: the one that OldHost expects")
    )


@dataclass(slots=True)
class Halt:
    """The ledger and OldHost side by side, and what each of the two decisions would do."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "reason": "OldHost expects nonce 501, but it answered 502 before: it went back, as after a restore from a "
        "backup. Decide by `resolve`.",
        "difference": "back",
        "conclusion": "OldHost's nonce is 2 behind ours: it lost 2 operations that it had answered, as after a "
        "restore from a backup.",
        "expected_nonce": 501,
        "next_nonce": 503,
        "last_applied_nonce": 502,
        "epoch": 3,
        "decided": None,
        "decided_by": None,
        "decided_at": None,
        "updated_at": "2026-05-01T12:01:05Z",
        "at_stake": 2,
        "same": False,
        "adopt": Consequences.EXAMPLE,
        "resend": {
            "says": "OldHost gets 2 operations, from nonce 501 on, again as they were.",
            "given_up": 0,
            "counted_applied": 0,
            "letters": 0,
            "sent_again": 2,
            "waiting_again": 0,
            "next_nonce": 503,
        },
        "operations": [OperationAtStake.EXAMPLE],
    }

    reason: str
    difference: str = field(
        metadata=described("back: OldHost expects an earlier nonce · forward: a later one · unknown")
    )
    conclusion: str = field(metadata=described("The difference as a sentence, with its size"))
    expected_nonce: int | None = field(metadata=described("The nonce that OldHost expected when it was last asked"))
    next_nonce: int | None = field(metadata=described("The next nonce by the ledger"))
    last_applied_nonce: int | None
    epoch: int
    decided: str | None = field(metadata=described("A `resolve` that is stored until OldHost can be asked"))
    decided_by: str | None
    decided_at: datetime | None
    updated_at: datetime
    at_stake: int = field(metadata=described("How many operations the decision affects"))
    same: bool = field(metadata=described("Whether both decisions have the same effect"))
    adopt: Consequences
    resend: Consequences
    operations: list[OperationAtStake] = field(
        default_factory=list, metadata=described("The first 50 operations that the decision affects")
    )


@dataclass(frozen=True, slots=True)
class _Choices:
    """What each of the two ways would do."""

    difference: str
    conclusion: str
    adopt: Consequences
    resend: Consequences


def read_halt(connection: Connection, host: str) -> Halt | None:
    """The halt of `host` with both choices; None when it is not halted."""
    ledger = connection.execute(_LEDGER, {"host": host}).one_or_none()
    if ledger is None or ledger.halted is None:
        return None
    expected, last = ledger.halted_expected_nonce, ledger.last_applied_nonce
    if expected is None and ledger.halted.startswith(NOBODY_KNOWS):
        choices = _of_word(connection, host, last)
    elif expected is None or last is None:
        choices = _of_unknown_count(connection, host, never_asked=last is None)
    elif expected <= last and ledger.count_fell_at is not None:
        choices = _of_fallen_count(connection, host, expected, ledger)
    elif expected <= last:
        choices = _of_back(connection, host, expected, last)
    else:
        choices = _of_forward(connection, host, expected, last)
    lost_from = expected if choices.difference == BACK and ledger.count_fell_at is None else None
    shown, at_stake = _at_stake(connection, host, lost_from)
    decision = read_decision(connection, host)
    return Halt(
        reason=ledger.halted,
        difference=choices.difference,
        conclusion=choices.conclusion,
        expected_nonce=expected,
        next_nonce=ledger.next_nonce,
        last_applied_nonce=last,
        epoch=ledger.epoch,
        decided=ledger.resolve_mode,
        decided_by=decision.operator if decision else None,
        decided_at=decision.decided_at if decision else None,
        updated_at=ledger.updated_at,
        at_stake=at_stake,
        same=_are_the_same(choices),
        adopt=choices.adopt,
        resend=choices.resend,
        operations=shown,
    )


def _are_the_same(choices: _Choices) -> bool:
    """Compare their numbers or, where these are not known yet, their texts."""
    if choices.difference == UNKNOWN_COUNT:
        return choices.adopt.says == choices.resend.says
    return replace(choices.adopt, says="") == replace(choices.resend, says="")


def _of_unknown_count(connection: Connection, host: str, *, never_asked: bool) -> _Choices:
    if never_asked:
        says = "The halt is lifted: OldHost was never asked what it expects, and nothing was sent."
        unknown = "What OldHost expects is not known: it was never asked."
        return _Choices(UNKNOWN_COUNT, unknown, Consequences(says), Consequences(says))
    doubts = connection.execute(_IN_DOUBT, {"host": host, "expected": 0}).all()
    adopted = sum(row.operations for row in doubts if not row.unwritten or row.replayed)
    letters = _letters(connection, host, NONCE_MAX)
    asked = "OldHost is asked what it expects. If that fits the ledger, the halt is lifted and nothing else changes"
    earlier = "If it expects an earlier one, nothing is decided and you must decide again."
    if adopted:
        later = f"if it expects a later nonce, up to {_operations(adopted)} in doubt"
        but = f", except {letters} that {'becomes a dead letter' if letters == 1 else 'become dead letters'}"
        adopt = f"{asked}; {later} count as applied{but if letters else ''}. {earlier}"
        resend = f"{asked}; {later} are sent again under new nonces. {earlier}"
    else:
        adopt = resend = f"{asked}. No operation in doubt can have reached it. {earlier}"
    unknown = "It is not known yet whether OldHost's nonce differs from ours."
    return _Choices(UNKNOWN_COUNT, unknown, Consequences(adopt), Consequences(resend))


def _of_word(connection: Connection, host: str, last: int) -> _Choices:
    """OldHost can't say whether it took the operation behind the last one that was answered, so the operator's word
    counts. Where it did not, it took none of those behind that one; where it did, the word says nothing about them.
    """
    doubts = connection.execute(_IN_DOUBT, {"host": host, "expected": last + 2}).all()
    unwritten = sum(row.operations for row in doubts if row.unwritten)
    written = sum(row.operations for row in doubts) - unwritten
    letters = _letters(connection, host, last + 2)
    adopt = Consequences(
        _taken(1 - letters, letters, 0, unwritten), counted_applied=1 - letters, letters=letters, sent_again=unwritten
    )
    resend = Consequences(_taken(0, 0, 0, written + unwritten), sent_again=written + unwritten)
    conclusion = "OldHost can't say whether it took the operation that is named: look there."
    return _Choices(UNKNOWN_COUNT, conclusion, adopt, resend)


def _of_back(connection: Connection, host: str, expected: int, last: int) -> _Choices:
    kept = connection.execute(_FROM, {"host": host, "nonce": expected}).one()
    beyond = int(connection.execute(_FROM, {"host": host, "nonce": last + 1}).one().operations)
    lost = last - expected + 1
    adopt = Consequences(
        f"OldHost's count is taken: what it lost ({_operations(lost)}) is not sent again."
        + (f" What is in doubt ({_operations(beyond)}) is sent again under a new nonce." if beyond else ""),
        given_up=lost,
        waiting_again=beyond,
        next_nonce=expected,
    )
    conclusion = (
        f"OldHost's nonce is {lost} behind ours: it lost {_operations(lost)} that it had answered, as after a restore "
        "from a backup."
    )
    highest = int(kept.highest or expected - 1)
    if are_sent_again(kept.operations, highest, expected):
        says = f"OldHost gets {_operations(kept.operations)}, from nonce {expected} on, again as they were."
        return _Choices(BACK, conclusion, adopt, Consequences(says, sent_again=kept.operations, next_nonce=highest + 1))
    unbroken = kept.operations == highest - expected + 1
    why = "They are too many to be sent as they were" if unbroken else "The ledger no longer has all of them"
    says = f"{why}: the {kept.operations} that it has wait again and get new nonces."
    resend = Consequences(
        says, waiting_again=kept.operations, given_up=highest - expected + 1 - kept.operations, next_nonce=expected
    )
    return _Choices(BACK, conclusion, adopt, resend)


def _of_fallen_count(connection: Connection, host: str, expected: int, ledger: Any) -> _Choices:
    last = ledger.last_applied_nonce
    beyond = int(connection.execute(_FROM, {"host": host, "nonce": last + 1}).one().operations)
    does = Consequences(
        "OldHost's count is taken, and its nonces are used again. What it called applied is not sent again."
        + (f" What was never written ({_operations(beyond)}) is sent under a new nonce." if beyond else ""),
        waiting_again=beyond,
        next_nonce=expected,
    )
    conclusion = (
        f"OldHost's count fell from {ledger.count_fell_at} to {expected} when it called our operation applied. It has "
        "what it called applied, unless a backup of it was restored since: what that lost, a resync sends again."
    )
    return _Choices(BACK, conclusion, does, does)


def _of_forward(connection: Connection, host: str, expected: int, last: int) -> _Choices:
    doubts = connection.execute(_IN_DOUBT, {"host": host, "expected": expected}).all()
    below = sum(row.operations for row in doubts if row.below)
    refused = sum(row.operations for row in doubts if row.below and row.never_taken)
    beyond = [row for row in doubts if not row.below]
    letters = _letters(connection, host, expected)

    def counted(again: int, applied: int, letters: int) -> Consequences:
        # If any waits again, the later ones that were never written also lose their nonces.
        released = [row for row in beyond if row.unwritten] if again else []
        bound = [row for row in beyond if row not in released]
        waiting = again + sum(row.operations for row in released)
        sent = sum(row.operations for row in bound)
        return Consequences(
            _taken(applied, letters, waiting, sent),
            counted_applied=applied,
            letters=letters,
            waiting_again=waiting,
            sent_again=sent,
            next_nonce=max((row.highest + 1 for row in bound), default=expected),
        )

    conclusion = _ahead(expected - last - 1, below - refused)
    return _Choices(FORWARD, conclusion, counted(refused, below - refused - letters, letters), counted(below, 0, 0))


def _letters(connection: Connection, host: str, expected: int) -> int:
    """How many doubts below `expected` become dead letters if they are adopted."""
    letters = 0
    for row in connection.exec_driver_sql(_ANSWERED, (host, expected)):
        if row.sends or (row.nonce == expected - 1 and row.answer == CALLED_A_REPLAY):  # else it waits again
            shared = bool(others_of(connection, host, row))
            letters += used(row, ADOPTED, shared=shared).ending.outcome is not Outcome.APPLIED
    return letters


def _taken(applied: int, letters: int, waiting: int, sent: int) -> str:
    parts = [
        (applied, "counts as applied", "count as applied"),
        (letters, "becomes a dead letter", "become dead letters"),
        (waiting, "is sent again under a new nonce", "are sent again under new nonces"),
        (sent, "is sent again under its nonce", "are sent again under their nonces"),
    ]
    effects = [f"{count} {singular if count == 1 else plural}" for count, singular, plural in parts if count]
    if not effects:
        return "OldHost's count is taken. Nothing is in doubt, and nothing is sent again."
    return f"OldHost's count is taken. Of what is in doubt, {', '.join(effects)}."


def _ahead(ahead: int, perhaps_ours: int) -> str:
    """`perhaps_ours`: how many operations in doubt OldHost may have taken."""
    if not ahead:
        return "OldHost's nonce is ours: what halted it is gone, and going on gives nothing up."
    theirs = "another client wrote, or we did before this database was restored"
    beyond = f"OldHost's nonce is {ahead} beyond ours"
    if not perhaps_ours:
        return f"{beyond}: {_operations(ahead)} that {theirs}."
    if perhaps_ours < ahead:
        return f"{beyond}: at least {_operations(ahead - perhaps_ours)} that {theirs}; the rest may be ours, in doubt."
    return f"{beyond}: our {_operations(ahead)} in doubt reached it, or another client wrote as many."


def _at_stake(connection: Connection, host: str, from_nonce: int | None) -> tuple[list[OperationAtStake], int]:
    """The first operations from a nonce on, or of those in doubt, and how many there are."""
    statuses = ["SENT"] if from_nonce is None else ["SENT", "APPLIED", "FAILED", "UNSURE"]
    listed = ", ".join(f"'{status}'" for status in statuses)
    count = text(
        "SELECT COUNT(*) FROM nonce_requests FORCE INDEX (ix_nonce_requests_status) "
        f"WHERE host = :host AND status IN ({listed}) AND nonce >= :nonce"
    )
    values = {"host": host, "nonce": from_nonce or 0}
    operations = text(_OPERATIONS.text.replace(":statuses", f"({listed})")).columns(sent_at=UtcDateTime())
    rows = connection.execute(operations, values | {"limit": OPERATIONS_SHOWN})
    shown = [OperationAtStake(*row) for row in rows]
    return shown, int(connection.execute(count, values).scalar_one())
