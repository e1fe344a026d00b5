"""Every limit of the product, with its reason, and the relations that must hold between them (asserted at import)."""

from __future__ import annotations

# ------------------------------------------------------------------------------------------------- what a change may be

# Names (hosts, entity types, event types): short, so that refs stay small and indexes stay in memory.
NAME_PATTERN = r"[A-Za-z0-9_.-]{1,64}"
HOST_LENGTH_MAX = 64
EVENT_TYPE_LENGTH_MAX = 64

# Ids and keys are printable text. Keys are ASCII: they travel in HTTP headers.
ID_LENGTH_MAX = 128
IDEMPOTENCY_KEY_LENGTH_MAX = 128
SOURCE_LENGTH_MAX = 64

# OldHost refuses bodies over 64 KiB (docs/protocol.md), and a unit's payload stands in its body twice: whole and
# lifted.
HOST_BODY_BYTES_MAX = 64 * 1024
# Names of the fields, types, nonce-free rest; two ids of 128 characters that JSON may escape to 12 bytes each.
ENVELOPE_BYTES_MAX = 4 * 1024
# Of compact JSON with everything beyond ASCII escaped (its longest form).
PAYLOAD_BYTES_MAX = 30 * 1024

# MariaDB's JSON functions stop at 32 levels; the shadow's state and the body of an operation nest a payload two deeper.
DATABASE_JSON_DEPTH_MAX = 32
PAYLOAD_DEPTH_MAX = 16

# Columns of units, shown in lists; longer values stay in the payload only by being refused.
UNIT_STATUS_LENGTH_MAX = 64
UNIT_NAME_LENGTH_MAX = 255

# Errors, reasons and answers kept for people; and who gave a reason.
TEXT_LENGTH_MAX = 1024
OPERATOR_LENGTH_MAX = 128

# Nobody plans a check-in further ahead; a larger value is a mistake in a unit of time.
NOT_BEFORE_DAYS_MAX = 1100
# `occurred_at` is data, but DATETIME must be able to hold it.
OCCURRED_AT_YEAR_MIN = 1970
OCCURRED_AT_YEAR_MAX = 9998

# Changes of one batch: some 50 ms of the database's time, for which their entities are locked.
BATCH_CHANGES_MAX = 500

# ------------------------------------------------------------------------------------------------------------- database

# Payloads that one statement of a batch carries. Escaped they may double, and MariaDB's max_allowed_packet is 16 MiB.
BATCH_STATEMENT_BYTES_MAX = 4 * 1024 * 1024
# For how long a batch comes back to entities that others hold, before it says so; the last wait may be a second longer.
BATCH_SECONDS_MAX = 2.0
# How often a batch is decided again because one of its keys was taken meanwhile: each time one more key is known.
BATCH_DECISIONS_MAX = 5
# A statement that takes longer is stuck; the server ends it before the client gives its connection up.
STATEMENT_SECONDS_MAX = 8
CONNECTION_READ_SECONDS_MAX = 10
CONNECT_SECONDS_MAX = 3
# Waiting for one entity's row: a hot entity is better refused than waited for.
LOCK_WAIT_SECONDS_MAX = 4
# Between two statements of a transaction the product does nothing but think. Who is silent for longer is stopped, or
# cut off, and may hold the ledger's row, which its successor must lock: that one gets it while it waits the first time.
IDLE_TRANSACTION_SECONDS_MAX = 3
# Waiting for a free connection: beyond it the API says 503.
POOL_WAIT_SECONDS_MAX = 2
# Below every default of wait_timeout on the way (MariaDB 28,800 s, proxies often 900 s).
CONNECTION_AGE_SECONDS_MAX = 600
# Deadlocks and lock waits are repeated as a whole; five times with growing pauses is under two seconds.
TRANSACTION_ATTEMPTS_MAX = 5
TRANSACTION_PAUSE_SECONDS = 0.02
TRANSACTION_PAUSE_SECONDS_MAX = 0.5

# ---------------------------------------------------------------------------------------------------------------- relay

# Refs in one signal: some 50 KiB, far below Temporal's 2 MB, and a workflow task stays short.
RELAY_BATCH_REFS_MAX = 500
# Each signal is an action and four events of history: one a second while many changes come, half as often while fewer
# than so many wait for it. The first after a rest goes at once.
RELAY_SIGNAL_INTERVAL_SECONDS = 1.0
RELAY_CALM_INTERVAL_SECONDS = 2.0
RELAY_CALM_CHANGES_MAX = 20
# How soon an EMERGENCY is seen: how often MariaDB looks (three index look-ups for each host) while a statement of the
# relay waits there; how long one waits at most, and so how long a relay that was told to stop stays; and how far apart
# two begin at least, and two full batches.
RELAY_LOOK_SECONDS, RELAY_WAIT_SECONDS, RELAY_POLL_SECONDS = 0.05, 0.5, 0.1
# How late a scheduled change may be recorded is a second.
RELAY_SCHEDULE_INTERVAL_SECONDS = 0.5
RELAY_SCHEDULE_BATCH_MAX = 200
# Relayed and without a fate: what the writer holds. More than a full house twice over is never useful to it.
RELAY_UNPROCESSED_MAX = 100_000
# Counting 100,000 index entries takes some 30 ms; between counts the relay subtracts what it hands over.
RELAY_COUNT_INTERVAL_SECONDS = 10.0
# A relay that is silent for so long gives its place up to the other one.
RELAY_LEASE_SECONDS = 5
# Changes that the writer has and whose rows somebody holds: so many are remembered, not to be signalled again each
# round.
RELAY_UNMARKED_MAX = 5_000
# How soon after its row is free a fate that waited is written; nobody waits for it, since all who ask look at both
# places.
RELAY_FATES_INTERVAL_SECONDS = 1.0
# They are written under the ledger row's lock, some 0.3 ms each; numbered, some 0.02 ms each.
RELAY_FATES_BATCH_ROWS, RELAY_NUMBERED_ROWS = 100, 500
# Pauses while Temporal or MariaDB is away: short at first, so that a restart is hardly felt.
RELAY_PAUSE_SECONDS = 0.2
RELAY_PAUSE_SECONDS_MAX = 5.0

# ------------------------------------------------------------------------------------------------------------ retention

# Fates are kept so long, then pruned in batches small enough to hold no lock for long.
RETENTION_DAYS = 90
# What was sent, and what came of it, is asked for within the year: a whole one, leap day included.
RETENTION_LEDGER_DAYS = 366
# Operators' acts are few, and the longest that books are commonly kept.
RETENTION_AUDIT_DAYS = 3_650
# 100 take some 10 ms. With 500, a write beside it waited up to 0.35 s; smaller batches cost more for each row.
RETENTION_BATCH_ROWS = 100
RETENTION_INTERVAL_SECONDS = 3600.0
# How often somebody's wish to have states sent again is looked for, and the pause for each state that is recorded.
RESYNC_LOOK_SECONDS, RESYNC_INTERVAL_SECONDS = 5.0, 1.0
# How often it is looked whether a day can be settled.
SETTLEMENT_INTERVAL_SECONDS = 600.0

assert 2 * PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX <= HOST_BODY_BYTES_MAX
assert PAYLOAD_BYTES_MAX < BATCH_STATEMENT_BYTES_MAX
assert PAYLOAD_DEPTH_MAX + 2 <= DATABASE_JSON_DEPTH_MAX
assert IDLE_TRANSACTION_SECONDS_MAX < LOCK_WAIT_SECONDS_MAX < STATEMENT_SECONDS_MAX < CONNECTION_READ_SECONDS_MAX
assert RELAY_LOOK_SECONDS < RELAY_WAIT_SECONDS < RELAY_LEASE_SECONDS / 3
assert RELAY_SCHEDULE_INTERVAL_SECONDS < 1
assert RETENTION_DAYS <= RETENTION_LEDGER_DAYS
assert RELAY_PAUSE_SECONDS < RELAY_PAUSE_SECONDS_MAX
