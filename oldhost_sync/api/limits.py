"""Every limit of the HTTP API, with its reason (those of a change itself are in `oldhost_sync.policy.limits`)."""

from __future__ import annotations

from oldhost_sync.policy.limits import (
    BATCH_SECONDS_MAX,
    CONNECTION_READ_SECONDS_MAX,
    IDEMPOTENCY_KEY_LENGTH_MAX,
    PAYLOAD_DEPTH_MAX,
    STATEMENT_SECONDS_MAX,
)
from oldhost_sync.store.views.units import STATUS_KEY_SUFFIX

# A payload is at most 30 KiB; the rest is for escapes and the envelope.
REQUEST_BODY_BYTES_MAX = 64 * 1024
# A batch: 500 changes of 4 KiB on average. Read and checked, it takes some 20 ms of a core.
BATCH_BODY_BYTES_MAX = 2 * 1024 * 1024
# Deeper than any payload may be; checked before anything recursive reads it.
REQUEST_JSON_DEPTH_MAX = 24
# What MariaDB's JSON functions, JavaScript bridges and C# clients still agree on: signed 64 bit.
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1

# `PUT /api/units/{id}` may record two changes under one key; the second one's key is longer by a suffix.
REQUEST_KEY_LENGTH_MAX = IDEMPOTENCY_KEY_LENGTH_MAX - len(STATUS_KEY_SUFFIX)

# Threads that talk to MariaDB, each with its own connection. Four fill two cores; more make the slowest requests slower
# (measured: 640 writes/s with 4 threads, 430 with the default of 40).
# Each host's group commit has one more, so that changes wait neither for reads nor for one another's locked rows.
DATABASE_THREADS = 4
# Changes that one transaction of the group commit takes; it holds the lock on each of their rows for some 10 ms.
GROUP_COMMIT_MAX = 100
# Beside them, for the process itself: whether the database takes writes, and what tokens used.
DATABASE_THREADS_BESIDE = 2
# The waiting room before those threads: at 600 a second it empties in under a second; beyond it, refuse at once.
DATABASE_QUEUE_MAX = 400
# How long a request waits there before it is refused.
DATABASE_QUEUE_SECONDS_MAX = 1.0
# Batches that are read and recorded at the same time; the other threads are for single requests. Two, so that one that
# waits for a held entity does not stop all others; more gain nothing (measured).
BATCHES_AT_ONCE = 2
# Batches that wait for that, and how long: 16 are two seconds' work where nobody else works, and at most 32 MiB.
BATCHES_WAITING_MAX = 16
BATCHES_QUEUE_SECONDS_MAX = 10.0
# While the database is known away, one request per interval tries it; all others are refused at once.
DATABASE_PROBE_SECONDS = 1.0
# Shorter than elsewhere: a person waits for it.
DATABASE_STATEMENT_SECONDS = 3
# How long, and how often, a locked row is waited for: four waiting requests occupy all threads.
DATABASE_LOCK_SECONDS = 1
DATABASE_ATTEMPTS = 3

# The longest wait for the database's answer. A frozen server is noticed by a connection's read timeout, which may come
# twice (the ping, then the new connection): ten seconds, too long for a person.
DATABASE_ANSWER_SECONDS_MAX = 6.0
assert 2 * DATABASE_LOCK_SECONDS * DATABASE_ATTEMPTS <= DATABASE_ANSWER_SECONDS_MAX
assert DATABASE_STATEMENT_SECONDS < DATABASE_ANSWER_SECONDS_MAX
assert BATCH_SECONDS_MAX + DATABASE_STATEMENT_SECONDS < DATABASE_ANSWER_SECONDS_MAX
assert BATCHES_AT_ONCE < DATABASE_THREADS

# What tokens used goes to the database, and what other processes let through comes back, this often; an alert of what
# was refused, and a look at the rules that say what an emergency is.
QUOTA_EXCHANGE_SECONDS = 1.0
QUOTA_ALERT_SECONDS, QUOTA_RULES_SECONDS = 10.0, 10.0

# Plans: some 0.1 ms of a core for each change, in a process of its own; others wait for it.
PLANNED_CHANGES_MAX = 50_000
PLAN_SECONDS_MAX = 30.0
PLANS_WAITING_MAX = 4

# Pages of lists.
PAGE_DEFAULT, PAGE_MAX = 50, 500

# Probes share what was found of the database for so long, good or bad; a look that lasts longer is an answer, too.
READY_SECONDS = 1.0
READY_LOOK_SECONDS_MAX = 2.0

# What clients are told to wait before they ask again.
FEED_POLL_SECONDS_BUSY, FEED_POLL_SECONDS, FEED_POLL_SECONDS_IDLE = 1, 5, 15

# The books are counted at most this often, however many ask.
BOOKS_SECONDS = 2.0
# Counting reads all that is kept (5 million changes a second, 90 days of them); it may take this share of the time.
BOOKS_SHARE_MAX = 0.05

# As many as the writer's query returns.
UPCOMING_MAX = 200
# Temporal answers a query in milliseconds; an operator's update takes a workflow task or two.
WRITER_QUERY_SECONDS_MAX = 2.0
WRITER_UPDATE_SECONDS_MAX = 10.0
# Dead letters that one request decides: each is an update of the writer, a tenth of a second, and a person waits.
LETTERS_AT_ONCE_MAX = 50
LETTERS_SECONDS_MAX = 20.0
# While Temporal is known to be away, try again this often.
WRITER_PROBE_SECONDS = 2.0

# Requests on their way end within so long after SIGTERM: one statement's bound and a little.
SHUTDOWN_SECONDS = CONNECTION_READ_SECONDS_MAX + 2

# A connection. Request line and headers: the longest path of ours is 1 KiB, a browser sends 2 KiB; as Node.js.
HEADER_BYTES_MAX = 16 * 1024
HEADERS_MAX = 100
# From the first byte (of a new connection: from its beginning) to the end of the headers, and from there to the end of
# the body. A batch of 2 MiB needs 70 KiB a second.
HEADER_SECONDS_MAX = 10.0
BODY_SECONDS_MAX = 30.0
# All bytes of one request, also those that no route reads (trailers, chunks of one byte).
REQUEST_BYTES_MAX = 2 * BATCH_BODY_BYTES_MAX
# Requests that wait for the answers before theirs, in one connection. Who sends one after the other has none.
PIPELINED_MAX = 16
# A client that takes nothing of its answer for so long is cut off.
UNREAD_SECONDS_MAX = 30.0
# Requests without a known token, from one address: so many at once, then at this pace, the others wait. Probes and the
# sign-in page need a few; each costs half a millisecond of the loop that all writes go through.
STRANGERS_AT_ONCE, STRANGERS_PER_SECOND = 100, 50
# But no longer than this: a probe from the address of a storm is answered in time, and what was left behind by one that
# did not wait for its answers is soon over. It bounds what a connection can ask for, too.
STRANGER_WAIT_SECONDS_MAX = 2.0
# Addresses that are remembered before those whose turn has passed are forgotten.
STRANGERS_KEPT = 4_096
# After a refusal so much is read and thrown away before the connection is closed: else the client's system may throw
# the refusal away unread. Only for so many at a time.
LINGER_SECONDS, LINGER_BYTES_MAX, LINGERING_MAX = 1.0, 1024 * 1024, 64

assert PAYLOAD_DEPTH_MAX < REQUEST_JSON_DEPTH_MAX
assert DATABASE_STATEMENT_SECONDS < STATEMENT_SECONDS_MAX
