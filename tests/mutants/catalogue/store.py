"""Wrong ideas about the database beside the ledger."""

from __future__ import annotations

from tests.mutants.levels import (
    ACCOUNT,
    ALERTS,
    CONFORMANCE,
    DEADLOCKS,
    ENDED_WORKERS,
    FOREIGN_LOCKS,
    OUTBOX,
    PACKETS,
    SIMULATION,
)
from tests.mutants.mutant import Mutant, Patch

ENGINE, TRANSACTIONS = "oldhost_sync/store/engine.py", "oldhost_sync/store/transactions.py"

MUTANTS = (
    Mutant(
        "a packet goes on after a row that is missing",
        (Patch(TRANSACTIONS, "        self.add(_STOP_UNLESS_CHANGED.format(number=len(self._otherwise)))\n", ""),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "a packet whose answer is lost was not committed",
        (Patch(TRANSACTIONS, "return self.connection.invalidated or not", "return not self.connection.invalidated and not"),),
        levels=(PACKETS,),
    ),
    Mutant(
        "a packet that failed may be committed, though its transaction is open",
        (Patch(TRANSACTIONS, "return self.connection.invalidated or not self.connection.exec_driver_sql(_IS_OPEN).scalar()", "return True"),),
        levels=(PACKETS,),
    ),
    Mutant(
        "a transaction that only read has no COMMIT",
        (Patch(ENGINE, "        self.server_status |= _IN_TRANSACTION\n", ""),),
        levels=(PACKETS,),
    ),
    Mutant(
        "a pooled connection is not looked at before its use",
        (Patch(ENGINE, "        if silent.poll(0):\n", "        if False:\n"),),
        levels=(PACKETS,),
    ),
    Mutant(
        "outbox by id cursor",
        (
            Patch(
                "oldhost_sync/store/outbox/outstanding_changes.py",
                'AND o.relayed_at IS NULL"\n# Without',
                'AND o.relayed_at IS NULL AND o.id > (SELECT COALESCE(MAX(m.id), 0) FROM outbox_events m '
                'WHERE m.host = o.host AND m.relayed_at IS NOT NULL)"\n# Without',
            ),
        ),
    ),
    Mutant(
        "retry of one statement instead of the transaction",
        (
            Patch(
                "oldhost_sync/store/transactions.py",
                "            result = fn(connection)\n",
                "            result = fn(_Repeating(connection))  # type: ignore[arg-type]\n",
            ),
            Patch(
                "oldhost_sync/store/transactions.py",
                "def _commit(connection: Connection) -> None:\n",
                "class _Repeating:\n"
                "    def __init__(self, connection):\n"
                "        self._connection = connection\n\n"
                "    def __getattr__(self, name):\n"
                "        return getattr(self._connection, name)\n\n"
                "    def exec_driver_sql(self, *arguments):\n"
                "        try:\n"
                "            return self._connection.exec_driver_sql(*arguments)\n"
                "        except DBAPIError as error:\n"
                "            if error_code(error) not in RETRIABLE_ERRORS:\n"
                "                raise\n"
                "            return self._connection.exec_driver_sql(*arguments)\n\n\n"
                "def _commit(connection: Connection) -> None:\n",
            ),
        ),
        levels=(DEADLOCKS,),
    ),
    Mutant(
        "SYNCED while a change waits",
        (Patch("oldhost_sync/store/read/entities.py", """f"WHEN {waits} THEN '{PENDING_SYNC}' ELSE""", """f"ELSE"""),),
        levels=(CONFORMANCE, SIMULATION),
    ),
    Mutant(
        "a fate waits for a row that others hold",
        (Patch("oldhost_sync/store/outbox/pending_fates.py", 'AT_ONCE = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "', 'AT_ONCE = ""'),),
        levels=(FOREIGN_LOCKS,),
    ),
    Mutant(
        "a list of conditions that arrives after a later one",
        (Patch("oldhost_sync/store/alerts.py", ".where(of_host, condition_lists.c.sequence < listed.sequence)", ".where(of_host)"),),
        levels=(ALERTS,),
    ),
    Mutant(
        "a new run closes what it can't judge yet",
        (Patch("oldhost_sync/store/alerts.py", "for kind in WRITER_KINDS if kind not in listed.unknown", "for kind in WRITER_KINDS"),),
        levels=(ALERTS,),
    ),
    Mutant(
        "an alert that gets worse and nobody hears of",
        (Patch("oldhost_sync/store/alerts.py", "    if escalates:\n        record_event(", "    if False:\n        record_event("),),
        levels=(ALERTS,),
    ),
    Mutant(
        "people close what the product still sees",
        (Patch("oldhost_sync/store/alerts.py", "not may_close(alert.kind)", "False"),),
        levels=(ALERTS,),
    ),
    Mutant(
        "a worker's lock lasts as long as its connection is silent",
        (Patch("oldhost_sync/store/workers.py", "SET SESSION wait_timeout = {LOCK_SILENT_SECONDS_MAX}", "DO 0"),),
        levels=(ENDED_WORKERS,),
    ),
    Mutant(
        "a change of a host that is not registered is accepted",
        (Patch("oldhost_sync/store/intake/change_recorder.py", "CASE WHEN EXISTS (SELECT 1 FROM event_rules WHERE host = %s) THEN %s END", "CASE WHEN %s = '' THEN NULL ELSE %s END"),),
        levels=(OUTBOX,),
    ),
    Mutant(
        "a worker that was last heard of in the future is at work",
        (Patch("oldhost_sync/store/workers.py", " AND seen_at <= UTC_TIMESTAMP(6) + INTERVAL :silent_s SECOND", ""),),
        levels=(ENDED_WORKERS,),
    ),
    Mutant(
        "a pooled connection keeps the rights that it began with",
        (Patch("oldhost_sync/store/engine.py", "    elif error_code(context.original_exception) in ACCESS_ERRORS:", "    elif False:"),),
        levels=(ACCOUNT,),
    ),
)  # fmt: skip
