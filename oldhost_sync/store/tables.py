"""The tables: what is stored. Alembic's migrations must create the same ones (a test compares them).

Rules for every table: InnoDB, utf8mb4; keys and ids are compared byte by byte and without padding, so that 'Abc', 'abc'
and 'abc ' are three ids; times are UTC with microseconds, and no naive time or other time zone can be stored
(:class:`UtcDateTime`); every row that belongs to one OldHost has its `host`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Index,
    Integer,
    SmallInteger,
    String,
    UniqueConstraint,
    and_,
    text,
)
from sqlalchemy.dialects import mysql

from oldhost_sync.drivers.events import INCARNATION_LENGTH_MAX
from oldhost_sync.policy import limits
from oldhost_sync.store.columns import UtcDateTime, by_host, of_host, one_of, stamp, table, text_id

# -------------------------------------------------------------------------------------------------------------- changes

# The last part of the names of the constraints that bound the size of a state.
STATE_SIZE = "state_size"
CLASSES = ("EMERGENCY", "TXN", "LWW")
OUTCOMES = ("APPLIED", "SUPERSEDED", "NO_OP", "STALE", "DEAD", "DISCARDED", "WITHDRAWN", "REFUSED")


def _shadow_columns(table_name: str) -> list[Any]:
    """The columns of every shadow row. `state` is {event_type: last accepted payload}. Whether OldHost has it is
    derived when it is read (store/read/entities.py): to store it, each fate would have to lock a row that
    applications may keep locked for long. A change that would make it larger than it may be is refused.
    """
    size = f"OCTET_LENGTH(state) <= {limits.STATE_BYTES_MAX}"
    return [
        Column("state", JSON, nullable=False),
        Column("newest_change_id", BigInteger),
        stamp("created_at"),
        stamp("updated_at"),
        CheckConstraint(size, name=f"ck_{table_name}_{STATE_SIZE}"),
    ]


units = table(
    "units",
    by_host(),
    Column("id", text_id(limits.ID_LENGTH_MAX), primary_key=True),
    Column("name", String(255)),
    Column("property_id", text_id(limits.ID_LENGTH_MAX)),
    Column("status", String(64)),
    *_shadow_columns("units"),
    # Lists of units by property or by name, in id order.
    Index("ix_units_property", "host", "property_id", "id"),
    Index("ix_units_name", "host", "name", "id"),
)

entities = table(
    "entities",
    by_host(),
    Column("entity_type", text_id(limits.EVENT_TYPE_LENGTH_MAX), primary_key=True),
    Column("id", text_id(limits.ID_LENGTH_MAX), primary_key=True),
    *_shadow_columns("entities"),
    # An id of any entity type (search).
    Index("ix_entities_id", "host", "id"),
)


def _submitted_columns() -> list[Any]:
    """The columns that an application submits, for a change now or a scheduled one."""
    return [
        Column("idempotency_key", text_id(limits.IDEMPOTENCY_KEY_LENGTH_MAX), nullable=False),
        Column("request_hash", mysql.BINARY(32), nullable=False),
        Column("entity_type", text_id(limits.EVENT_TYPE_LENGTH_MAX), nullable=False),
        Column("entity_id", text_id(limits.ID_LENGTH_MAX), nullable=False),
        Column("event_type", text_id(limits.EVENT_TYPE_LENGTH_MAX), nullable=False),
        Column("payload", JSON, nullable=False),
        # The caller's span, as W3C writes it (fields/traceparent.py). No part of the request's hash.
        Column("traceparent", text_id(limits.TRACEPARENT_LENGTH)),
    ]


outbox_events = table(
    "outbox_events",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    *_submitted_columns(),
    Column("priority_class", String(16), nullable=False),
    Column("source", String(64), nullable=False, server_default=text("'python'")),
    Column("occurred_at", UtcDateTime),
    stamp("created_at"),
    Column("relayed_at", UtcDateTime),
    Column("processed_at", UtcDateTime),
    Column("outcome", String(16)),
    Column("superseded_by", BigInteger),
    Column("nonce", BigInteger),
    Column("error", String(limits.TEXT_LENGTH_MAX)),
    # No answer of OldHost proves the fate: an APPLIED change is unconfirmed, a DEAD one is unsure (I14).
    Column("unproven", Boolean, nullable=False, server_default=text("0")),
    # The number of the ledger transaction that decided the fate; if it is NULL, the relay numbers the fate later.
    Column("fate_sequence", BigInteger),
    # Of a WITHDRAWN change: the number of the operator's act in `operator_audit`.
    Column("withdrawn_by", BigInteger),
    UniqueConstraint("host", "idempotency_key", name="uq_outbox_events_idempotency_key"),
    one_of("ck_outbox_events_priority_class", "priority_class", *CLASSES),
    one_of("ck_outbox_events_outcome", "outcome", *OUTCOMES),
    CheckConstraint("(outcome IS NULL) = (processed_at IS NULL)", name="ck_outbox_events_fate"),
    # The relay's claim (not yet relayed, by class, in id order), its counts of changes without a fate, waiting
    # emergencies.
    Index("ix_outbox_events_unrelayed", "host", "processed_at", "priority_class", "relayed_at", "id"),
    # Outstanding changes in id order (rebuild, sweep); changes that ended before a day (retention).
    Index("ix_outbox_events_outstanding", "host", "processed_at", "id"),
    # One entity's or one key's outstanding changes (superseding, I7, `find`); its LWW keys one by one, however many
    # changes and other event types it has (store/ledger/reservation.py).
    Index("ix_outbox_events_key", "host", "entity_type", "entity_id", "processed_at", "priority_class", "event_type"),
    # Dead letters and the books.
    Index("ix_outbox_events_outcome", "host", "outcome", "id"),
    # Outstanding, dead or discarded changes, of one entity or entity by entity (sync status, held changes); and the
    # oldest of one entity by class, however many it has (store/ledger/reservation.py).
    Index("ix_outbox_events_status", "host", "outcome", "entity_type", "entity_id", "priority_class"),
    # Lists for people, newest first: by class (all three: every change), by event type, of one entity.
    Index("ix_outbox_events_class", "host", "priority_class", "id"),
    Index("ix_outbox_events_event", "host", "event_type", "id"),
    Index("ix_outbox_events_entity", "host", "entity_type", "entity_id", "id"),
    # The feed of fates; fates without a number.
    Index("ix_outbox_events_feed", "host", "fate_sequence", "processed_at", "id"),
)

# A fate that could not be written because the change's row was locked; the relay writes it when the row is free.
pending_fates = table(
    "pending_fates",
    by_host(),
    Column("change_id", BigInteger, primary_key=True, autoincrement=False),
    Column("entity_type", text_id(limits.EVENT_TYPE_LENGTH_MAX), nullable=False),
    Column("entity_id", text_id(limits.ID_LENGTH_MAX), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("nonce", BigInteger),
    Column("superseded_by", BigInteger),
    Column("error", String(limits.TEXT_LENGTH_MAX)),
    Column("unproven", Boolean, nullable=False, server_default=text("0")),
    stamp("decided_at"),
    one_of("ck_pending_fates_outcome", "outcome", *OUTCOMES),
    Index("ix_pending_fates_entity", "host", "entity_type", "entity_id"),
)

IS_FATE_OF_CHANGE = and_(pending_fates.c.host == outbox_events.c.host, pending_fates.c.change_id == outbox_events.c.id)

# Up to which number fates were pruned: a reader of the feed with an older cursor has missed some.
feed_horizon = table("feed_horizon", by_host(), Column("pruned_sequence", BigInteger, nullable=False))

# How far each webhook has accepted the feed (store/webhook_cursors.py), and why not the next fate; disabled: by 410.
webhook_cursors = table(
    "webhook_cursors",
    by_host(),
    Column("name", text_id(limits.HOST_LENGTH_MAX), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("processed_at_us", BigInteger, nullable=False),
    Column("change_id", BigInteger, nullable=False),
    Column("trouble", String(64)),
    Column("is_disabled", Boolean, nullable=False, server_default=text("0")),
)

# What OldHost last applied for each coalescing key: decides no-op and stale (trap 8).
applied_states = table(
    "applied_states",
    by_host(),
    Column("entity_type", text_id(limits.EVENT_TYPE_LENGTH_MAX), primary_key=True),
    Column("entity_id", text_id(limits.ID_LENGTH_MAX), primary_key=True),
    Column("event_type", text_id(limits.EVENT_TYPE_LENGTH_MAX), primary_key=True),
    Column("change_id", BigInteger, nullable=False),
    Column("payload_hash", mysql.BINARY(32), nullable=False),
    Column("nonce", BigInteger, nullable=False),
    # Name and version of the mapping that made the bytes.
    Column("mapping", text_id(limits.MAPPING_LENGTH_MAX), nullable=False, server_default=text("''")),
    stamp("applied_at"),
    Index("ix_applied_states_nonce", "host", "nonce"),
    Index("ix_applied_states_mapping", "host", "mapping"),
)

scheduled_changes = table(
    "scheduled_changes",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    *_submitted_columns(),
    Column("source", String(64), nullable=False),
    Column("occurred_at", UtcDateTime),
    Column("not_before", UtcDateTime, nullable=False),
    stamp("created_at"),
    Column("recorded_at", UtcDateTime),
    Column("cancelled_at", UtcDateTime),
    Column("change_id", BigInteger),
    UniqueConstraint("host", "idempotency_key", name="uq_scheduled_changes_idempotency_key"),
    Index("ix_scheduled_changes_due", "host", "recorded_at", "cancelled_at", "not_before", "id"),
    # One entity's oldest scheduled change (recorded in due order by any relay).
    Index(
        "ix_scheduled_changes_entity",
        *("host", "entity_type", "entity_id", "recorded_at", "cancelled_at", "not_before", "id"),
    ),
)

# Every idempotency key that was submitted. Only its PRIMARY KEY decides whether a key is new (change_recorder.py says
# why). `row_id`: of the row with the first answer, in `scheduled_changes` if `is_scheduled`, else in `outbox_events`.
submitted_keys = table(
    "submitted_keys",
    by_host(),
    Column("idempotency_key", text_id(limits.IDEMPOTENCY_KEY_LENGTH_MAX), primary_key=True),
    Column("is_scheduled", Boolean, nullable=False),
    Column("row_id", BigInteger),
)

# Resyncs (store/intake/resync.py): of a property, of a unit, or of everything. `after_type`, `after_id`: the cursor,
# which is the last entity that was read. `first_change_id`, `last_change_id`: of the changes recorded for it.
resyncs = table(
    "resyncs",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    Column("property_id", text_id(limits.ID_LENGTH_MAX)),
    Column("unit_id", text_id(limits.ID_LENGTH_MAX)),
    Column("operator", String(limits.OPERATOR_LENGTH_MAX), nullable=False),
    Column("reason", String(limits.TEXT_LENGTH_MAX), nullable=False),
    stamp("created_at"),
    Column("finished_at", UtcDateTime),
    Column("after_type", text_id(limits.EVENT_TYPE_LENGTH_MAX), nullable=False),
    Column("after_id", text_id(limits.ID_LENGTH_MAX), nullable=False),
    Column("recorded", BigInteger, nullable=False, server_default=text("0")),
    Column("skipped", BigInteger, nullable=False, server_default=text("0")),
    Column("first_change_id", BigInteger),
    Column("last_change_id", BigInteger),
    Index("ix_resyncs_finished", "host", "finished_at", "id"),
)

event_rules = table(
    "event_rules",
    by_host(),
    Column("event_type", text_id(limits.EVENT_TYPE_LENGTH_MAX), primary_key=True),
    Column("priority_class", String(16), nullable=False),
    one_of("ck_event_rules_priority_class", "priority_class", *CLASSES),
)

# How each host's changes become bodies (store/mappings.py). `label`: name and version; `definition`: the rules.
# `in_use`: 1, or NULL for one that was replaced.
host_mappings = table(
    "host_mappings",
    by_host(),
    Column("label", text_id(limits.MAPPING_LENGTH_MAX), primary_key=True),
    Column("definition", mysql.MEDIUMTEXT, nullable=False),
    Column("in_use", Boolean),
    stamp("installed_at"),
    Index("ux_host_mappings_in_use", "host", "in_use", unique=True),
)

# The active relay of each host. The lease is for efficiency only; two relays are safe (signals are idempotent).
relay_lease = table(
    "relay_lease",
    by_host(),
    Column("owner", String(255), nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
)

# ----------------------------------------------------------------------------------------------------------- the ledger

nonce_ledger = table(
    "nonce_ledger",
    by_host(),
    # next_nonce: the next to be bound; NULL: OldHost was never asked. last_applied_nonce: all nonces up to it are used.
    Column("next_nonce", BigInteger),
    Column("last_applied_nonce", BigInteger),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("owner", String(255)),
    # When OldHost's last ban was first seen, when it ends by OldHost's own words, and when it last said so.
    Column("banned_at", UtcDateTime),
    Column("banned_until", UtcDateTime),
    Column("ban_told_at", UtcDateTime),
    # Whether OldHost has agreed with the ledger since: the clock may be set back to within the ban.
    Column("ban_is_over", Boolean, nullable=False, server_default=text("0")),
    Column("halted", String(limits.TEXT_LENGTH_MAX)),
    # The nonce that OldHost expected at the halt, as shown to operators: a `resolve` is valid only for this one.
    Column("halted_expected_nonce", BigInteger),
    # A host's number is the nonce less this; since when, and from which nonce on: it began to count anew then.
    Column("host_base", BigInteger, nullable=False, server_default=text("0")),
    Column("host_base_nonce", BigInteger),
    Column("host_base_since", UtcDateTime),
    # What told the host's present start from others, when the last session began (Ready.incarnation).
    Column("host_incarnation", String(INCARNATION_LENGTH_MAX), nullable=False, server_default=text("''")),
    # The nonce that an answer called applied while it named a next one that is not beyond it. So OldHost has our
    # operations up to it, whatever its count is: no `resolve` sends them again.
    Column("count_fell_at", BigInteger),
    # Until when a reservation looks for operations that OldHost refused (ledger/fates.py).
    Column("apart_until", UtcDateTime),
    # An operator's `resolve` that waits until OldHost can be probed; and the epoch that the last one began.
    Column("resolve_mode", String(8)),
    Column("resolved_epoch", BigInteger),
    # When an operator last ended a halt, and the id of the newest change that the writer had at the next opening.
    # What is missing in the database is given up if it is older by both, since the clock may have been ahead.
    Column("losses_accepted_at", UtcDateTime),
    Column("losses_accepted_id", BigInteger),
    # The number of the last transaction that decided fates; raised under this row's lock, so in commit order.
    Column("fate_sequence", BigInteger, nullable=False, server_default=text("0")),
    stamp("updated_at"),
    CheckConstraint("next_nonce > last_applied_nonce", name="ck_nonce_ledger_order"),
)

# When each machine's monotonic clock was zero, by this database's clock (store/ledger/reconciliation.py).
machine_clocks = table(
    "machine_clocks",
    by_host(),
    Column("machine", text_id(64), primary_key=True),
    Column("began_at", UtcDateTime, nullable=False),
    stamp("seen_at"),
)


def _request_columns() -> list[Any]:
    return [
        Column("idempotency_key", text_id(limits.IDEMPOTENCY_KEY_LENGTH_MAX), nullable=False),
        Column("change_id", BigInteger, nullable=False),
        Column("epoch", BigInteger, nullable=False),
        Column("body", mysql.MEDIUMBLOB, nullable=False),
        # Name and version of the mapping that made the body.
        Column("mapping", String(limits.MAPPING_LENGTH_MAX)),
        Column("status", String(16), nullable=False),
        Column("sends", Integer, nullable=False, server_default=text("0")),
        stamp("created_at"),
        Column("sent_at", UtcDateTime),
        Column("completed_at", UtcDateTime),
        Column("answer", String(limits.TEXT_LENGTH_MAX)),
        # Of a complete answer that did not end the operation, with its words in `answer`: whether it was a rejection if
        # the nonce is used. `said_send`: to which of its sends it was given; 0: to one that does not count.
        Column("said_rejects", Boolean, nullable=False, server_default=text("0")),
        Column("said_send", Integer),
        # Some answer to one of its sends said that the nonce is used: it is never sent with it again.
        Column("said_used", Boolean, nullable=False, server_default=text("0")),
        # How many answers refused this operation without using the nonce, as far as they told.
        Column("refused", Integer, nullable=False, server_default=text("0")),
    ]


nonce_requests = table(
    "nonce_requests",
    by_host(),
    Column("nonce", BigInteger, primary_key=True, autoincrement=False),
    *_request_columns(),
    UniqueConstraint("host", "idempotency_key", name="uq_nonce_requests_idempotency_key"),
    one_of("ck_nonce_requests_status", "status", "RESERVED", "SENT", "APPLIED", "FAILED", "UNSURE"),
    Index("ix_nonce_requests_status", "host", "status", "nonce"),
    Index("ix_nonce_requests_change", "host", "change_id"),
    # Operations that ended on a day (settlement).
    Index("ix_nonce_requests_completed", "host", "completed_at", "nonce"),
)

# Evidence: rows that no longer bind their nonce (rejected without consuming it, or undone by an operator), and rows
# whose change is old enough to be deleted (retention).
nonce_requests_archive = table(
    "nonce_requests_archive",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    Column("nonce", BigInteger, nullable=False),
    *_request_columns(),
    stamp("archived_at"),
    Column("reason", String(limits.TEXT_LENGTH_MAX), nullable=False),
    Index("ix_nonce_requests_archive_change", "host", "change_id"),
    # The operations that a nonce had before the present one.
    Index("ix_nonce_requests_archive_nonce", "host", "nonce"),
    # Operations that ended on a day, or were archived on it without an answer (settlement, retention).
    Index("ix_nonce_requests_archive_completed", "host", "completed_at", "nonce"),
    Index("ix_nonce_requests_archive_archived", "host", "archived_at", "nonce"),
)

# The days whose settlement file was written, without a gap. `sha256`: of the whole file, also in the next day's file.
# `released_at`: when the file was found to agree with the ledger, so that retention may delete those rows.
settled_days = table(
    "settled_days",
    by_host(),
    Column("day", Date, primary_key=True),
    Column("sha256", mysql.BINARY(32), nullable=False),
    Column("records", BigInteger, nullable=False),
    stamp("settled_at"),
    Column("released_at", UtcDateTime),
)

# ------------------------------------------------------------------------------------------------- operators and tokens

operator_audit = table(
    "operator_audit",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    Column("action", String(32), nullable=False),
    Column("operator", String(limits.OPERATOR_LENGTH_MAX), nullable=False),
    Column("reason", String(limits.TEXT_LENGTH_MAX), nullable=False),
    Column("change_id", BigInteger),
    Column("detail", JSON),
    stamp("created_at"),
    # The channel of the act, and whether its name was verified (NULL: no person's name).
    Column("channel", String(16), nullable=False),
    Column("verified", Boolean),
    Index("ix_operator_audit_created", "host", "created_at"),
    Index("ix_operator_audit_change", "host", "change_id"),
    Index("ix_operator_audit_action", "host", "action", "id"),
)


def _token_columns() -> list[Any]:
    """The token that it was made with: its name, and the SHA-256 of the token's SHA-256 in the settings."""
    return [
        Column("token_name", String(64), nullable=False),
        Column("token_fingerprint", mysql.BINARY(32), nullable=False),
        stamp("created_at"),
        Column("expires_at", UtcDateTime, nullable=False),
    ]


# Who is signed in to the console, by the SHA-256 of the cookie; signing out deletes the row.
console_sessions = table(
    "console_sessions",
    by_host(),
    Column("digest", mysql.BINARY(32), primary_key=True),
    *_token_columns(),
    stamp("seen_at"),
    Index("ix_console_sessions_expires", "host", "expires_at"),
)

# Links that sign in once (development), by the SHA-256 of their secret; using one deletes the row.
sign_in_links = table(
    "sign_in_links",
    by_host(),
    Column("digest", mysql.BINARY(32), primary_key=True),
    *_token_columns(),
    Index("ix_sign_in_links_expires", "host", "expires_at"),
)

# When each API token was last used; `fingerprint`: of the token (settings.ApiToken).
token_uses = table(
    "token_uses",
    by_host(),
    Column("fingerprint", mysql.BINARY(32), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("last_used_at", UtcDateTime, nullable=False),
)

# What each token used in each of the last 60 minutes (store/access.py): a ring buffer; `minute`: since 1970.
token_usage = table(
    "token_usage",
    by_host(),
    Column("token_name", text_id(64), primary_key=True),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in ("minute", "requests", "changes", "emergencies", "refused")),
)

# --------------------------------------------------------------------------------------------------------------- alerts

alerts = table(
    "alerts",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    Column("kind", String(64), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("message", String(limits.TEXT_LENGTH_MAX), nullable=False),
    Column("change_id", BigInteger),
    # One open alert per cause.
    Column("dedupe_key", text_id(limits.IDEMPOTENCY_KEY_LENGTH_MAX), nullable=False),
    stamp("created_at"),
    Column("delivered_at", UtcDateTime),
    Column("closed_at", UtcDateTime),
    Column("is_open", Boolean, server_default=text("1")),
    # How many things the message is about.
    Column("occurrences", Integer, nullable=False, server_default=text("1")),
    # When its count, severity or message last changed; who acknowledged it, and when; who closed it (NULL: the product,
    # because its cause was gone), and why.
    Column("updated_at", UtcDateTime),
    Column("acknowledged_at", UtcDateTime),
    Column("acknowledged_by", String(limits.OPERATOR_LENGTH_MAX)),
    Column("acknowledge_reason", String(limits.TEXT_LENGTH_MAX)),
    Column("closed_by", String(limits.OPERATOR_LENGTH_MAX)),
    Column("close_reason", String(limits.TEXT_LENGTH_MAX)),
    UniqueConstraint("host", "dedupe_key", "is_open", name="uq_alerts_dedupe_key"),
    one_of("ck_alerts_severity", "severity", "info", "warning", "critical"),
    # Open alerts in id order; alerts that were closed before a day (retention).
    Index("ix_alerts_closed", "host", "closed_at", "id"),
    Index("ix_alerts_undelivered", "host", "delivered_at", "id"),
    Index("ix_alerts_kind", "host", "kind", "id"),
)

# The events for the webhook, each with the alert's state at that time: opened, escalated, closed.
alert_events = table(
    "alert_events",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    Column("alert_id", BigInteger, nullable=False),
    Column("event", String(16), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("message", String(limits.TEXT_LENGTH_MAX), nullable=False),
    Column("occurrences", Integer, nullable=False),
    Column("operator", String(limits.OPERATOR_LENGTH_MAX)),
    Column("reason", String(limits.TEXT_LENGTH_MAX)),
    stamp("created_at"),
    Column("delivered_at", UtcDateTime),
    one_of("ck_alert_events_event", "event", "opened", "escalated", "closed"),
    Index("ix_alert_events_undelivered", "host", "delivered_at", "id"),
    Index("ix_alert_events_alert", "alert_id", "id"),
    # Events older than a day (retention).
    Index("ix_alert_events_created", "host", "created_at", "id"),
)

# The number of the writer's last list of conditions: an older one that arrives late must not open or close anything.
condition_lists = table("condition_lists", by_host(), Column("sequence", BigInteger, nullable=False))

# Incidents in which emergencies were late; at most one is open. `_ended`: those with a fate, `_waiting`: those without,
# as last seen. Late: half of the promise (warned), all of it (breached).
late_emergencies = table(
    "late_emergencies",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    stamp("started_at"),
    Column("ended_at", UtcDateTime),
    Column("is_open", Boolean, server_default=text("1")),
    Column("warned_ended", Integer, nullable=False),
    Column("breached_ended", Integer, nullable=False),
    Column("warned_waiting", Integer, nullable=False),
    Column("breached_waiting", Integer, nullable=False),
    Column("worst_ms", BigInteger, nullable=False),
    Column("cause", String(limits.TEXT_LENGTH_MAX), nullable=False),
    UniqueConstraint("host", "is_open", name="uq_late_emergencies_open"),
    Index("ix_late_emergencies_started", "host", "started_at"),
)

# ----------------------------------------------------------------------------------------- what no operation depends on

# Workers, each as it reports itself (store/workers.py); those not seen for a day are deleted. `knows_release`:
# the newest release of the writer's decisions that it can begin a run with. `round_trip_us`: the shortest of a few
# round trips to MariaDB at its last report.
workers = table(
    "workers",
    by_host(),
    Column("name", text_id(255), primary_key=True),
    stamp("began_at"),
    stamp("seen_at"),
    Column("left_at", UtcDateTime),
    Column("knows_release", SmallInteger, nullable=False),
    Column("round_trip_us", Integer),
)

# Each session with OldHost, as its worker recorded it (store/workers.py).
host_sessions = table(
    "host_sessions",
    by_host(),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", String(255), nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("opened_at_nonce", BigInteger, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("ended_because", String(limits.TEXT_LENGTH_MAX)),
    Column("lost_replies", Integer, nullable=False, server_default=text("0")),
)

# Three ring buffers of samples (store/read/figures.py): buckets of `step_s` seconds, overwritten in turn. The next
# sample counts from `waiting` and `sequence` of the last one.
load_samples = table(
    "load_samples",
    by_host(),
    Column("step_s", Integer, primary_key=True, autoincrement=False),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("at", UtcDateTime, nullable=False),
    *(Column(name, Integer, nullable=False) for name in ("emergency", "txn", "lww", "accepted", "applied")),
    Column("emergency_ms", BigInteger, nullable=False),
    Column("stopped", String(16)),
    Column("waiting", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)

# From accepted to applied: how many changes of each class took up to `upto_ms` (and more than the bound before).
applied_waits = table(
    "applied_waits",
    by_host(),
    Column("priority_class", String(16), primary_key=True),
    Column("upto_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("changes", BigInteger, nullable=False),
    Column("total_ms", BigInteger, nullable=False),
)

# Up to which fate the relay has counted; and how many changes had final fates by then (store/outbox/books.py):
# `booked_sequence` and `resolved_epoch` say whether these numbers can be used.
counted_fates = table(
    "counted_fates",
    by_host(),
    Column("sequence", BigInteger, nullable=False),
    Column("booked_sequence", BigInteger),
    Column("resolved_epoch", BigInteger),
    *(
        Column(name, BigInteger, nullable=False, server_default=text("0"))
        for name in ("applied", "superseded", "no_op", "stale", "discarded", "withdrawn", "refused")
    ),
)

# Of all tables.
metadata = units.metadata
