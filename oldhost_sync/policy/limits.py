"""The limits of changes, database access, the relay and retention, with reasons; their relations are asserted below.

Other limits: `tuning.py` (the writer), `oldhost/limits.py` (sessions) and `api/limits.py` (the HTTP API).
"""

from __future__ import annotations

# ------------------------------------------------------------------------------------------------- what a change may be

# Names (hosts, entity types, event types): short, so that refs stay small and indexes stay in memory.
# No `-` at the beginning: MariaDB's JSON paths can't have such a name, and a command line takes it for an option.
NAME_PATTERN = r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}"
HOST_LENGTH_MAX = 64
EVENT_TYPE_LENGTH_MAX = 64

# Ids and keys are printable text. Keys are ASCII: they travel in HTTP headers.
ID_LENGTH_MAX = 128
KEY_PATTERN = "[!-~]+"
# A key as it is stored; and as an application may give it: keys that are derived from it are longer (`key/status`,
# `key:499`).
IDEMPOTENCY_KEY_LENGTH_MAX = 128
KEY_LENGTH_MAX = 120
SOURCE_LENGTH_MAX = 64

# OldHost refuses bodies over 64 KiB (docs/protocol.md). The body for a unit has its payload twice: as a whole, and its
# fields lifted to the top level.
HOST_BODY_BYTES_MAX = 64 * 1024
# The body without the payload: field names, types, and two ids of 128 characters that JSON may escape to 12 bytes each.
ENVELOPE_BYTES_MAX = 4 * 1024
# Measured as compact JSON with everything beyond ASCII escaped (its longest form).
PAYLOAD_BYTES_MAX = 30 * 1024
# A mapping's name and version of 32 characters each, with a slash.
MAPPING_LENGTH_MAX = 80

# MariaDB's JSON functions stop at 32 levels; the shadow's state and the body of an operation add two levels.
DATABASE_JSON_DEPTH_MAX = 32
PAYLOAD_DEPTH_MAX = 16

# The state of an entity: the last payload of each of its event types, as JSON. Each write reads and writes all of it,
# under the entity's lock: some 10 ms more at this size, 1.1 s at 16 MiB.
STATE_BYTES_MAX = 256 * 1024

# Columns of units, shown in lists. Longer values are refused, not cut.
UNIT_STATUS_LENGTH_MAX = 64
UNIT_NAME_LENGTH_MAX = 255

# Stored errors, reasons and answers, and the name of the operator who gave a reason.
TEXT_LENGTH_MAX = 1024
OPERATOR_LENGTH_MAX = 128
# A pause that ends by itself; a longer one is for a person to end.
PAUSE_SECONDS_MAX = 31 * 24 * 3600

# A check-in is never planned further ahead; a larger value is a mistake in the unit of time.
NOT_BEFORE_DAYS_MAX = 1100
# RFC 3339, with an offset and without leap seconds.
MOMENT_PATTERN = (
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
# W3C's `traceparent`, version 00 or later; a later one may have more behind another "-".
TRACEPARENT_PATTERN = r"(?!ff|00.{53}-)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?![^-])"
TRACEPARENT_LENGTH = 55
# Every moment from outside: DATETIME holds it, and so it does after a day is added or subtracted.
YEAR_MIN, YEAR_MAX = 1970, 9998
# The range that MariaDB's JSON functions, JavaScript bridges and C# clients all support: signed 64 bit.
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1

# Changes of one batch: some 50 ms in the database, during which their entities are locked.
BATCH_CHANGES_MAX = 500

# ------------------------------------------------------------------------------------------------------------- database

# Payload bytes in one statement of a batch. Escaping may double them.
BATCH_STATEMENT_BYTES_MAX = 4 * 1024 * 1024
# The least max_allowed_packet of MariaDB (its default is 16 MiB): such a statement, with the columns of its rows.
PACKET_BYTES_MIN = 2 * BATCH_STATEMENT_BYTES_MAX + 2 * 1024 * 1024
# How long a batch retries entities that other transactions have locked, before it reports them as busy. The last wait
# may take a second longer.
BATCH_SECONDS_MAX = 2.0
# How often a batch is decided again because another transaction took one of its keys; each time one more key is known.
BATCH_DECISIONS_MAX = 5
# A statement that takes longer is stuck; the server aborts it before the client drops its connection.
STATEMENT_SECONDS_MAX = 8
CONNECTION_READ_SECONDS_MAX = 10
# A statement of a `resolve`, whose transaction changes all operations that OldHost has lost: some 0.12 ms for each, and
# a busy host has 220,000 a day. Meanwhile the host is halted.
RESOLVE_STATEMENT_SECONDS_MAX = 900
# So many operations that OldHost lost are bound again as they were. All of them are in doubt until they are sent, and
# each opening reads what is in doubt. Of more, the changes wait again, and of each LWW key only the newest is sent.
SENT_AGAIN_MAX = 10_000
# So many are carried out while a session opens, which must be quick; more need a further `resolve`.
RESOLVED_AT_OPENING_MAX = 10_000
CONNECT_SECONDS_MAX = 3
# Wait for one entity's row lock. After that, the request is refused rather than kept waiting for a busy entity.
LOCK_WAIT_SECONDS_MAX = 4
# Between two statements of a transaction the product only computes. A client that is idle for longer is suspended or
# disconnected, and may still lock the ledger's row. Its successor needs that lock, and gets it in its first lock wait.
IDLE_TRANSACTION_SECONDS_MAX = 3
# Wait for a free connection; after that the API answers 503.
POOL_WAIT_SECONDS_MAX = 2
# Below the usual idle timeouts between us and the database (MariaDB's wait_timeout 28,800 s, proxies often 900 s).
CONNECTION_AGE_SECONDS_MAX = 600
# One that only reads is not told that its server was demoted; it may read old rows for this long.
READING_CONNECTION_AGE_SECONDS_MAX = 30
# After a deadlock or a lock wait timeout the whole transaction is repeated. Five attempts with growing pauses between
# them add less than two seconds.
TRANSACTION_ATTEMPTS_MAX = 5
TRANSACTION_PAUSE_SECONDS = 0.02
TRANSACTION_PAUSE_SECONDS_MAX = 0.5

# ---------------------------------------------------------------------------------------------------------------- relay

# Refs in one signal: some 50 KiB, far below Temporal's 2 MB, and a workflow task stays short.
RELAY_BATCH_REFS_MAX = 500
# Each signal costs a Temporal action, four history events and as much CPU as a send. So one a second is sent while many
# changes arrive, and one every two seconds while fewer than 20 wait for it; every four seconds if also the writer has
# 300 changes without a fate: OldHost takes as many in two minutes (at 400 ms, some of them still in their debounce), so
# it is hardly ever idle then. The first signal after a quiet period is sent at once.
RELAY_SIGNAL_INTERVAL_SECONDS = 1.0
RELAY_CALM_INTERVAL_SECONDS = 2.0
RELAY_BACKLOG_INTERVAL_SECONDS = 4.0
RELAY_CALM_CHANGES_MAX = 20
RELAY_BACKLOG_CHANGES = 300
# What waits for its signal can't coalesce, so no signal waits longer than this part of the debounce.
RELAY_DEBOUNCE_PER_SIGNAL = 30
# How soon an EMERGENCY is seen. LOOK: how often the relay's statement, which waits in MariaDB, checks for changes
# (three index look-ups for each host). WAIT: how long that statement waits at most, and so how long a relay takes to
# stop. POLL: the least time between the starts of two such statements, and between two full batches.
RELAY_LOOK_SECONDS, RELAY_WAIT_SECONDS, RELAY_POLL_SECONDS = 0.05, 0.5, 0.1
# A scheduled change may be recorded up to a second late.
RELAY_SCHEDULE_INTERVAL_SECONDS = 0.5
RELAY_SCHEDULE_BATCH_MAX = 200
# Changes that were relayed and have no fate yet: those that the writer has. More than two times 50,000 is never useful
# to it.
RELAY_UNPROCESSED_MAX = 100_000
# Counting 100,000 index entries takes some 30 ms; between two counts the relay subtracts what it hands over.
RELAY_COUNT_INTERVAL_SECONDS = 10.0
# After this long without a sign of life, the active relay loses its lease to the other one.
RELAY_LEASE_SECONDS = 5
# A relay that can't signal offers its lease to the others so often: all of them may be cut off from Temporal.
RELAY_OFFER_SECONDS = 60
# Changes that were signalled but can't be marked as relayed yet, because another transaction has locked their rows.
# The relay remembers up to this many, so that it does not signal them again each round.
RELAY_UNMARKED_MAX = 5_000
# How often the relay tries to write fates that wait for a locked row. It is not urgent: readers look in both places.
RELAY_FATES_INTERVAL_SECONDS = 1.0
# They are written under the ledger's row lock: some 0.3 ms for each fate, and 0.02 ms for each that only gets a number.
RELAY_FATES_BATCH_ROWS, RELAY_NUMBERED_ROWS = 100, 500
# Pauses while Temporal or MariaDB is down: short at first, so that a restart is hardly noticed.
RELAY_PAUSE_SECONDS = 0.2
RELAY_PAUSE_SECONDS_MAX = 5.0

# ------------------------------------------------------------------------------------------------------------ retention

# How long fates are kept. They are then pruned in batches so small that no lock lasts long.
RETENTION_DAYS = 90
# Questions about sent operations and their results arise within a year: a whole one, leap day included.
RETENTION_LEDGER_DAYS = 366
# Operators' acts are few; ten years is the longest that business records are commonly kept.
RETENTION_AUDIT_DAYS = 3_650
# 100 rows take some 10 ms. With 500, a concurrent write waited up to 0.35 s; smaller batches cost more for each row.
RETENTION_BATCH_ROWS = 100
RETENTION_INTERVAL_SECONDS = 3600.0
# How often the relay looks for a requested resync, and its pause after each state that it records.
RESYNC_POLL_SECONDS, RESYNC_INTERVAL_SECONDS = 5.0, 1.0
# How often the relay checks whether a day can be settled.
SETTLEMENT_INTERVAL_SECONDS = 600.0

assert 2 * PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX <= HOST_BODY_BYTES_MAX
assert 8 * PAYLOAD_BYTES_MAX < STATE_BYTES_MAX
assert PAYLOAD_BYTES_MAX < BATCH_STATEMENT_BYTES_MAX
assert PAYLOAD_DEPTH_MAX + 2 <= DATABASE_JSON_DEPTH_MAX
assert IDLE_TRANSACTION_SECONDS_MAX < LOCK_WAIT_SECONDS_MAX < STATEMENT_SECONDS_MAX < CONNECTION_READ_SECONDS_MAX
assert RELAY_LOOK_SECONDS < RELAY_WAIT_SECONDS < RELAY_LEASE_SECONDS / 3
assert RELAY_SCHEDULE_INTERVAL_SECONDS < 1
assert RETENTION_DAYS <= RETENTION_LEDGER_DAYS
assert RELAY_PAUSE_SECONDS < RELAY_PAUSE_SECONDS_MAX
