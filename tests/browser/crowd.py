"""A hundred thousand changes, written straight into the tables: three days of a large house, all that lists meet."""

from __future__ import annotations

from contextlib import closing

from oldhost_sync.store.read.figures import RINGS
from tests.faults.product import Product

CHANGES, AT_ONCE, UNITS = 100_000, 20_000, 1_999
# The newest, which have no fate yet; and, of a thousand, which one OldHost rejected.
OUTSTANDING, REJECTED = 300, 760
# A rejected one of the unit, and one that was replaced: as the statements below make them.
DEAD_ID, SUPERSEDED_ID, UNIT = REJECTED, 7, "U-760"
# Two of three rejected ones have this reason.
REASON, OF_THE_REASON = "the property is closed for the season, and nobody has said until when", 66

# LWW changes by the next of their unit and event type.
_REPLACED = f"seq MOD 6 = 1 AND seq <= {{ended}} - 3 * {UNITS}"
_OUTBOX = (
    "INSERT INTO outbox_events (id, host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "priority_class, source, created_at, relayed_at, processed_at, outcome, superseded_by, error, fate_sequence) "
    "SELECT seq, '{host}', CONCAT('pms-2026-11-', LPAD(seq, 7, '0')), REPEAT('h', 32), 'unit', "
    f"CONCAT('U-', seq MOD {UNITS}), "
    "ELT(1 + seq MOD 3, 'booking_created', 'unit_status_changed', 'rate_changed'), "
    "JSON_OBJECT('note', CONCAT('change number ', seq)), ELT(1 + seq MOD 3, 'TXN', 'LWW', 'LWW'), 'pms', "
    "UTC_TIMESTAMP(6) - INTERVAL ({changes} - seq) * 2.5 SECOND, "
    "IF(seq > {ended}, NULL, UTC_TIMESTAMP(6)), IF(seq > {ended}, NULL, UTC_TIMESTAMP(6) - INTERVAL "
    "({changes} - seq) * 2 SECOND), "
    f"CASE WHEN seq > {{ended}} THEN NULL WHEN seq MOD 1000 = {REJECTED} THEN 'DEAD' "
    "WHEN seq MOD 1000 = 78 THEN 'DISCARDED' WHEN seq MOD 100 = 6 THEN 'NO_OP' WHEN seq MOD 100 = 8 THEN 'STALE' "
    f"WHEN {_REPLACED} THEN 'SUPERSEDED' ELSE 'APPLIED' END, "
    f"IF({_REPLACED}, seq + 3 * {UNITS}, NULL), "
    f"IF(seq MOD 1000 = {REJECTED} AND seq <= {{ended}}, "
    f"IF(seq MOD 3 = 1, CONCAT('no such guest ', seq), '{REASON}'), NULL), "
    "IF(seq > {ended}, NULL, seq) FROM seq_{first}_to_{last}"
)
_MORE = (
    (
        "INSERT INTO units (host, id, name, property_id, status, state, newest_change_id) SELECT '{host}', "
        "CONCAT('U-', seq - 1), CONCAT('Sea view ', seq - 1), CONCAT('harbour-', seq MOD 20), "
        f"ELT(1 + seq MOD 3, 'Clean', 'Dirty', 'Occupied'), '{{{{}}}}', 90000 + seq FROM seq_1_to_{UNITS}"
    ),
    (
        "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce) "
        "SELECT '{host}', 'unit', CONCAT('U-', seq - 1), 'unit_status_changed', seq, REPEAT('h', 32), seq "
        f"FROM seq_1_to_{UNITS}"
    ),
    (
        "INSERT INTO scheduled_changes (host, idempotency_key, request_hash, entity_type, entity_id, event_type, "
        f"payload, source, not_before) SELECT '{{host}}', CONCAT('later-', seq), REPEAT('h', 32), 'unit', '{UNIT}', "
        "'rate_changed', '{{}}', 'pms', UTC_TIMESTAMP(6) + INTERVAL seq HOUR FROM seq_1_to_70"
    ),
    (
        "INSERT INTO operator_audit (channel, host, action, operator, reason, change_id, detail) "
        "SELECT 'api', '{host}', ELT(1 + seq MOD 3, 'retry', 'discard', 'flush'), 'anna', "
        "'OldHost has mended its guests', seq, JSON_OBJECT('message', 'done') FROM seq_1_to_250"
    ),
    "INSERT INTO nonce_ledger (host, fate_sequence) VALUES ('{host}', {changes})",
    "INSERT INTO counted_fates (host, sequence) VALUES ('{host}', {changes})",
)
# A wave of an hour in each ring, with a ban in the middle.
_SAMPLES = (
    "INSERT INTO load_samples (host, step_s, slot, at, emergency, txn, lww, accepted, applied, emergency_ms, stopped, "
    "waiting, sequence) SELECT '{host}', {step_s}, b MOD {slots}, FROM_UNIXTIME(b * {step_s}), n < 3, "
    "60 + 50 * SIN(n / 20), 200 + 180 * COS(n / 30), 12 + 6 * SIN(n / 9), IF(n BETWEEN 100 AND 160, 0, 10), "
    "IF(n MOD 40, 0, 900 * (n MOD 7)), IF(n BETWEEN 100 AND 160, 'BANNED', IF(n BETWEEN 200 AND 220, 'PAUSED', NULL)), "
    "{outstanding}, {changes} FROM (SELECT seq AS n, UNIX_TIMESTAMP() DIV {step_s} - seq AS b "
    "FROM seq_1_to_{samples}) buckets"
)


def fill(product: Product) -> None:
    """Before the roles start: they find a house with a past, and `OUTSTANDING` changes to send."""
    given = {"host": product.host, "changes": CHANGES, "ended": CHANGES - OUTSTANDING, "outstanding": OUTSTANDING}
    with closing(product.connect_database()) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for first in range(1, CHANGES, AT_ONCE):  # in parts, each well within a statement's time
            cursor.execute(_OUTBOX.format(**given, first=first, last=first + AT_ONCE - 1))
        for statement in _MORE:
            cursor.execute(statement.format(**given))
    fill_charts(product, outstanding=OUTSTANDING, changes=CHANGES)


def fill_charts(product: Product, *, outstanding: int = 0, changes: int = 0) -> None:
    """The past of the load. `outstanding`, `changes`: what the next sample is to go on from."""
    given = {"host": product.host, "outstanding": outstanding, "changes": changes}
    with closing(product.connect_database()) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for ring in RINGS.values():
            cursor.execute(_SAMPLES.format(**given, step_s=ring.step_s, slots=ring.slots, samples=ring.slots - 1))
