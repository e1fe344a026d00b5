"""MariaDB's ledger as the conformance suite and the session tests see it."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy.engine import Engine

from oldhost_sync.oldhost.ledger import Count, Ledger
from oldhost_sync.policy.changes import CHANGE_ID_MAX, ChangeRef, PriorityClass
from oldhost_sync.policy.rules.operator_act import OperatorAct, at_the_terminal
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.intake.rules import set_rule
from oldhost_sync.store.intake.withdrawal import (
    WithdrawalFilter,
    WithdrawalPreview,
    begin_undo,
    begin_withdrawal,
    preview,
)
from oldhost_sync.store.ledger.maria_ledger import MariaLedger
from oldhost_sync.store.ledger.operator_commands import decide
from oldhost_sync.store.outbox.books import Books, count_books
from oldhost_sync.store.outbox.outstanding_changes import mark_relayed, unix_ms
from oldhost_sync.store.read.entities import sync_status
from oldhost_sync.store.transactions import run_in_transaction
from tests.conformance.ledger_world import Withdrawn

HOST = "oldhost"
ADA = at_the_terminal("ada")


class MariaWorld:
    """Fits `ledger_world.LedgerWorld`."""

    def __init__(self, engine: Engine, settle_seconds: float) -> None:
        self.engine = engine
        self.ledger: Ledger = MariaLedger(engine, HOST, timedelta(seconds=settle_seconds))

    def record(
        self,
        entity_id: str = "u1",
        event_type: str = "booking_created",
        payload: dict[str, Any] | None = None,
        *,
        key: str | None = None,
        source: str = "python",
    ) -> int:
        with self.engine.begin() as connection:
            recorded = record_change(
                connection,
                host=HOST,
                entity_type="unit",
                entity_id=entity_id,
                event_type=event_type,
                payload=payload or {},
                idempotency_key=key,
                source=source,
            )
            assert recorded.change_id is not None
            mark_relayed(connection, [recorded.change_id])
            return recorded.change_id

    def classify(self, event_type: str, priority_class: PriorityClass) -> None:
        with self.engine.begin() as connection:
            set_rule(connection, HOST, event_type, priority_class)

    def age(self, seconds: float) -> None:
        self.execute("UPDATE nonce_requests SET sent_at = sent_at - INTERVAL %s SECOND", seconds)
        self.execute("UPDATE nonce_requests_archive SET archived_at = archived_at - INTERVAL %s SECOND", seconds)
        self.execute(
            "UPDATE nonce_ledger SET banned_at = banned_at - INTERVAL %s SECOND, "
            "banned_until = banned_until - INTERVAL %s SECOND, ban_told_at = ban_told_at - INTERVAL %s SECOND",
            seconds,
            seconds,
            seconds,
        )

    def accepted_at_ms(self, change_id: int) -> int:
        ((created_at,),) = self.read("SELECT created_at FROM outbox_events WHERE id = %s", change_id)
        return unix_ms(created_at)

    def outcome(self, change_id: int) -> tuple[str | None, int | None]:
        ((outcome, nonce),) = self.read("SELECT outcome, nonce FROM outbox_events WHERE id = %s", change_id)
        return outcome, nonce

    def sync_status(self, entity_id: str) -> str:
        with self.engine.connect() as connection:
            return sync_status(connection, HOST, "unit", entity_id)

    def row(self, nonce: int) -> tuple[int, str, bytes] | None:
        rows = self.read("SELECT change_id, status, body FROM nonce_requests WHERE nonce = %s", nonce)
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    def archived(self) -> list[int]:
        return [nonce for (nonce,) in self.read("SELECT nonce FROM nonce_requests_archive ORDER BY nonce")]

    def counts(self) -> tuple[int | None, int | None]:
        ((last, following),) = self.read("SELECT last_applied_nonce, next_nonce FROM nonce_ledger")
        return last, following

    def halted(self) -> str | None:
        ((text,),) = self.read("SELECT halted FROM nonce_ledger")
        return None if text is None else str(text)

    def decide(
        self,
        action: str,
        *,
        change_id: int | None = None,
        mode: str | None = None,
        decision_id: str = "",
        count: Count | None = None,
        epoch: int = 0,
        expected: int | None = None,
    ) -> str:
        act = OperatorAct(HOST, action, "ada", "a test", change_id, mode, decision_id=decision_id, epoch=epoch)
        act.expected = expected
        told = count or Count(self.shown() or (self.counts()[0] or 0) + 1)
        return run_in_transaction(self.engine, lambda connection: decide(connection, act, told)).refused

    def preview(self, **wanted: Any) -> WithdrawalPreview:
        return run_in_transaction(self.engine, lambda connection: preview(connection, HOST, WithdrawalFilter(**wanted)))

    def withdraw(self, *, up_to: int | None = None, **wanted: Any) -> Withdrawn:
        refs: list[ChangeRef] = []
        begin = partial(begin_withdrawal, host=HOST, wanted=WithdrawalFilter(**wanted), operator=ADA, reason="a test")
        act = run_in_transaction(self.engine, partial(begin, up_to=CHANGE_ID_MAX if up_to is None else up_to))
        while not act.done:
            step = run_in_transaction(self.engine, act.step)
            act.took(step)
            refs += step.refs
        return Withdrawn(act.act_id, act.withdrawn, act.bound, act.locked, refs)

    def undo(self, act_id: int) -> tuple[int, int]:
        begin = partial(begin_undo, host=HOST, act_id=act_id, operator=ADA, reason="a mistake")
        undo = run_in_transaction(self.engine, begin)
        while not undo.done:
            undo.took(run_in_transaction(self.engine, undo.step))
        return undo.recorded, undo.left_out

    def age_withdrawals(self, seconds: float) -> None:
        self.execute("UPDATE outbox_events SET processed_at = processed_at - INTERVAL %s SECOND", seconds)
        self.execute("UPDATE operator_audit SET created_at = created_at - INTERVAL %s SECOND", seconds)

    def waiting(self) -> list[tuple[int, str, str]]:
        query = "SELECT id, entity_id, event_type FROM outbox_events WHERE outcome IS NULL ORDER BY id"
        return [(row[0], row[1], row[2]) for row in self.read(query)]

    def shadow(self, entity_id: str) -> dict[str, Any]:
        ((state,),) = self.read("SELECT state FROM units WHERE id = %s", entity_id)
        shown: dict[str, Any] = json.loads(state)
        return shown

    def unit(self, entity_id: str) -> tuple[str | None, str | None, int | None]:
        query = (
            "SELECT u.status, u.name, o.id FROM units u LEFT JOIN outbox_events o ON o.id = u.newest_change_id "
            "AND o.outcome IS NULL WHERE u.id = %s"
        )
        ((status, name, newest),) = self.read(query, entity_id)
        return status, name, newest

    def books(self) -> Books:
        return run_in_transaction(self.engine, lambda connection: count_books(connection, HOST))

    def banned_for_s(self) -> float:
        query = "SELECT TIMESTAMPDIFF(MICROSECOND, banned_at, UTC_TIMESTAMP(6)) DIV 1000 FROM nonce_ledger"
        ((for_ms,),) = self.read(query)
        return float(for_ms) / 1000

    def shown(self) -> int | None:
        """What OldHost expected when it was halted, as operators see it."""
        shown: list[tuple[int | None]] = self.read("SELECT halted_expected_nonce FROM nonce_ledger")
        return shown[0][0] if shown else None

    def read(self, query: str, *values: Any) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.exec_driver_sql(query, values).all())

    def execute(self, statement: str, *values: Any) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(statement, values)
