"""Every limit of the HTTP API, with its reason (those of a change itself are in `oldhost_sync.policy.limits`)."""

from __future__ import annotations

from oldhost_sync.policy.limits import (
    BATCH_CHANGES_MAX,
    BATCH_SECONDS_MAX,
    CONNECTION_READ_SECONDS_MAX,
    IDEMPOTENCY_KEY_LENGTH_MAX,
    KEY_LENGTH_MAX,
    PAYLOAD_DEPTH_MAX,
    STATEMENT_SECONDS_MAX,
)
from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.store.intake.change_recorder import STATUS_KEY_SUFFIX

# A payload has at most 30 KiB; the rest is for escapes and the envelope.
REQUEST_BODY_BYTES_MAX = 64 * 1024
# A batch: 500 changes of 4 KiB on average. Reading and checking it takes about 20 ms of a core.
BATCH_BODY_BYTES_MAX = 2 * 1024 * 1024
# Deeper than any payload may be; checked before anything recursive reads it.
REQUEST_JSON_DEPTH_MAX = 24

# `PUT /api/units/{id}` may record two changes under one key, a batch many; those keys are longer by a suffix.
assert KEY_LENGTH_MAX + max(len(STATUS_KEY_SUFFIX), len(f":{BATCH_CHANGES_MAX}")) <= IDEMPOTENCY_KEY_LENGTH_MAX

# Threads that talk to MariaDB, each with its own connection. Four fill two cores; more make the slowest requests slower
# (measured: 640 writes/s with 4 threads, 430 with the default of 40).
# Each host's group commit has one more thread, so that changes wait neither for reads nor for each other's row locks.
DATABASE_THREADS = 4
# Further threads, for changes that wait for their entity's row while another transaction holds it; so no other request
# waits for them. Two, and each for another entity, so that one that is held for long does not delay the others.
LOCK_WAITS_AT_ONCE = 2
# Changes in one transaction of the group commit; it holds their row locks for about 10 ms.
GROUP_COMMIT_MAX = 100
# How long a group with a conflict is tried in halves; the next group waits for DATABASE_QUEUE_SECONDS_MAX.
GROUP_COMMIT_SECONDS_MAX = 0.25
# Further threads for the process itself: checking that the database takes writes, and storing what tokens used.
DATABASE_THREADS_SEPARATE = 2
# The queue for those threads: at 600 requests a second it empties in under a second; above it, refuse at once.
DATABASE_QUEUE_MAX = 400
# How long a request waits there before it is refused.
DATABASE_QUEUE_SECONDS_MAX = 1.0
# Batches that are read and recorded at the same time; the other threads are for single requests. Two, so that a batch
# that waits for a row lock does not stop all others; more gain nothing (measured).
BATCHES_AT_ONCE = 2
# Batches that wait in the queue, and how long: 16 are two seconds of work on an idle server, and at most 32 MiB.
BATCHES_WAITING_MAX = 16
BATCHES_QUEUE_SECONDS_MAX = 10.0
# While the database is known away, one request per interval tries it; all others are refused at once.
DATABASE_PROBE_SECONDS = 1.0
# Shorter than elsewhere, because a person waits.
DATABASE_STATEMENT_SECONDS = 3
# How long a row lock is waited for, and how often. Short, because few requests can wait for one.
DATABASE_LOCK_SECONDS = 1
DATABASE_ATTEMPTS = 3

# The longest wait for the database's answer. A connection's read timeout also detects a frozen server, but may pass
# twice (the ping, then the new connection): ten seconds, too long for a person.
DATABASE_ANSWER_SECONDS_MAX = 6.0
assert 2 * DATABASE_LOCK_SECONDS * DATABASE_ATTEMPTS <= DATABASE_ANSWER_SECONDS_MAX
assert DATABASE_STATEMENT_SECONDS < DATABASE_ANSWER_SECONDS_MAX
assert BATCH_SECONDS_MAX + DATABASE_STATEMENT_SECONDS < DATABASE_ANSWER_SECONDS_MAX
assert BATCHES_AT_ONCE < DATABASE_THREADS
assert 2 * GROUP_COMMIT_SECONDS_MAX < DATABASE_QUEUE_SECONDS_MAX

# How often each process stores what tokens used, and reads what other processes let through; how often it raises an
# alert for refused requests, and how often it reads the rules that define emergencies.
QUOTA_EXCHANGE_SECONDS = 1.0
QUOTA_ALERT_SECONDS, QUOTA_RULES_SECONDS = 10.0, 10.0

# Writes that the database refuses: an alert is raised once they go on for so long and are such a share of all, and is
# brought up to date so often. They are over after a pause as long as an application may take to repeat one.
REFUSED_WRITES_SECONDS, REFUSED_WRITES_SHARE = KINDS["writes-refused"].opens_after_s, 0.1
REFUSED_WRITES_ALERT_SECONDS, REFUSED_WRITES_PAUSE_SECONDS = 10.0, 30.0

# Plans: about 0.1 ms of a core for each change, in a separate process; other plans wait for it.
PLANNED_CHANGES_MAX = 50_000
PLAN_SECONDS_MAX = 30.0
PLANS_WAITING_MAX = 4

# Pages of lists.
PAGE_DEFAULT, PAGE_MAX = 50, 500

# How long probes share one result of the database check, good or bad; a check that takes longer than the second value
# counts as failed.
READY_SECONDS = 1.0
# How long a refused write counts while no other write is tried: longer than most probes' interval.
READY_REFUSED_SECONDS = 15.0
READY_POLL_SECONDS_MAX = 2.0

# What one token may read: answers of lists take 0.2 ms of the event loop for each kB, so this is a fifth of its time. A
# reader of the feed gets some 3,000 changes a second; each request counts as a kB more. A token that reads less gets so
# many seconds' worth at once (some fifty pages of the console); one that reads more waits, and is then refused.
READ_BYTES_PER_SECOND, READ_BYTES_EACH = 1_000_000, 1_000
READ_AHEAD_SECONDS, READ_WAIT_SECONDS_MAX = 5.0, 10.0
# Paths whose largest answer is remembered; there are some hundred routes, but paths contain ids.
READ_COSTS_KEPT = 1_000

# The page of metrics is rendered once in this time, however many ask; Prometheus asks every few seconds at most.
METRICS_SECONDS = 1.0

# How long clients should wait before they ask the feed again.
FEED_POLL_SECONDS_BUSY, FEED_POLL_SECONDS, FEED_POLL_SECONDS_IDLE = 1, 5, 15

# Streams of fates: of all tokens, and of one. A look each second serves all of a host. A page of 50 fates each 20 ms is
# as much as a reader of the feed gets. A line without meaning keeps proxies from ending a quiet stream. A stream ends
# after so long: its reader comes again with its token.
STREAMS_MAX, STREAMS_OF_ONE_TOKEN_MAX = 64, 8
STREAM_LOOK_SECONDS, STREAM_PAGE_SECONDS, STREAM_QUIET_SECONDS, STREAM_SECONDS_MAX = 1.0, 0.02, 15.0, 900.0

# The shortest time between two counts of the books, however many requests ask.
BOOKS_SECONDS = 2.0
# Counting reads all changes that are kept (90 days, at 5 million a second); it may take this share of the time.
BOOKS_SHARE_MAX = 0.05

# The largest number that the writer's query returns.
UPCOMING_MAX = 200
# How long the writer's outlook is used before it is asked again while changes come, in general and while nothing waits;
# at most this share of the time it may be asked. An older one is not used.
OUTLOOK_SECONDS, OUTLOOK_SECONDS_CALM, OUTLOOK_SHARE_MAX, OUTLOOK_SECONDS_MAX = 1.0, 10.0, 0.05, 30.0
# How long a write that is recorded waits for the first outlook, and how many changes since the last are counted.
OUTLOOK_WAIT_SECONDS_MAX, OUTLOOK_CHANGES_MAX = 0.1, 5_000
# Temporal answers a query in milliseconds; an operator's update takes a workflow task or two.
WRITER_QUERY_SECONDS_MAX = 2.0
WRITER_UPDATE_SECONDS_MAX = 10.0
# Operators' acts on a host that are at the writer at a time. It takes them one by one, and lets three wait
# (`operator_acts.PENDING_MAX`); two keep it busy, and leave a place for the terminal.
ACTS_AT_ONCE = 2
# Acts that wait for them, and how long: an act takes 0.1 s, so they are carried out in two seconds.
ACTS_WAITING_MAX, ACTS_QUEUE_SECONDS_MAX = 32, 5.0
# Dead letters that one request decides: each is an update of the writer and takes 0.1 s, and a person waits.
LETTERS_AT_ONCE_MAX = 50
LETTERS_SECONDS_MAX = 20.0
# While Temporal is known to be away, it is tried this often.
WRITER_PROBE_SECONDS = 2.0

# How long requests in progress may take after SIGTERM: a change may wait for its group, and then be recorded alone.
SHUTDOWN_SECONDS = 2 * round(DATABASE_QUEUE_SECONDS_MAX + DATABASE_ANSWER_SECONDS_MAX)
assert SHUTDOWN_SECONDS > CONNECTION_READ_SECONDS_MAX

# Request line and headers of a connection: our longest path has 1 KiB, a browser sends 2 KiB. The same as in Node.js.
HEADER_BYTES_MAX = 16 * 1024
HEADERS_MAX = 100
# The timeout from the first byte (on a new connection: from its start) to the end of the headers, and from there to the
# end of the body. A batch of 2 MiB needs 70 KiB a second.
HEADER_SECONDS_MAX = 10.0
BODY_SECONDS_MAX = 30.0
# All bytes of one request, including those that no route reads (trailers, the overhead of one-byte chunks).
REQUEST_BYTES_MAX = 2 * BATCH_BODY_BYTES_MAX
# Pipelined requests that wait in one connection. A client that waits for each answer has none.
PIPELINED_MAX = 16
# A client that reads nothing of its answer for this long is disconnected.
UNREAD_SECONDS_MAX = 30.0
# Requests without a known token, from one address: this many at once, then this many per second; the others wait.
# Probes and the sign-in page need only a few. Each costs half a millisecond of the event loop that handles all writes.
STRANGERS_AT_ONCE, STRANGERS_PER_SECOND = 100, 50
# But they wait no longer than this: so a probe from an address that floods the server is still answered in time, and
# the delay ends soon after the flood. It also limits how many requests one connection can make.
STRANGER_WAIT_SECONDS_MAX = 2.0
# The number of addresses in memory above which those with no waiting requests are dropped.
STRANGERS_KEPT = 4_096
# After a refusal, input is read and discarded up to these limits before the connection is closed: otherwise the
# client's system may discard the refusal unread. Only this many connections do so at the same time.
LINGER_SECONDS, LINGER_BYTES_MAX, LINGERING_MAX = 1.0, 1024 * 1024, 64

assert PAYLOAD_DEPTH_MAX < REQUEST_JSON_DEPTH_MAX
assert DATABASE_STATEMENT_SECONDS < STATEMENT_SECONDS_MAX


def database_connections(hosts: int) -> int:
    """One for each thread of a process that serves so many hosts."""
    return DATABASE_THREADS + LOCK_WAITS_AT_ONCE + hosts


# How long one request withdraws changes, or undoes that; the next one goes on. Clients wait for 10 s.
WITHDRAWAL_SECONDS = 5.0
