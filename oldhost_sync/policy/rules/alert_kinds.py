"""The kinds of alerts, in one table: what each means, when it opens, what to do next, and what closes it.

From this table come the sections of `docs/operations.md` (`runbook`), the console's next steps, and the rules of
Prometheus (`python -m tests.architecture.runbook` writes sections and rules anew). The product closes an alert when it
sees that the cause is gone. People may close only informational alerts: those about an event whose end the product
can't see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from oldhost_sync.policy.tuning import FORECAST_MS, NO_PROGRESS_MS, USUAL_PROMISES

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[str, ...] = get_args(Severity)

Kind = Literal[
    "ban",
    "halted",
    "emergency-late",
    "emergency-blocked",
    "no-progress",
    "no-session",
    "goes-nowhere",
    "answers-lost",
    "sessions-broken",
    "writer-closed",
    "paused-in-temporal",
    "writer-failing",
    "no-worker",
    "no-relay",
    "relay-failing",
    "temporal-away",
    "database-far",
    "dead-letters",
    "forecast",
    "signals-lost",
    "schedule-failed",
    "submission-refused",
    "unreadable-signal",
    "strays",
    "retention-behind",
    "over-quota",
    "writes-refused",
    "settlement-stopped",
    "webhook-late",
    "mapping-changed",
]

# What is the case at the writer, as the writer itself reports it (`machine/conditions.py`).
WRITER_KINDS: tuple[Kind, ...] = (
    "ban",
    "halted",
    "emergency-blocked",
    "no-progress",
    "no-session",
    "goes-nowhere",
    "answers-lost",
    "sessions-broken",
    "forecast",
)

# An informational alert closes by itself after this many days in which its cause did not occur again.
QUIET_DAYS = 7
_LOOKED_AT = f"a person closed it, or {QUIET_DAYS} days passed without another"


@dataclass(frozen=True, slots=True)
class MetricRule:
    """A rule of Prometheus. `lasts`: for how long it must be so, in its notation. `section`: of the runbook; by default
    the kind's own.
    """

    name: str
    expression: str
    summary: str
    severity: Severity = "critical"
    lasts: str = ""
    section: str = ""


@dataclass(frozen=True, slots=True)
class AlertKind:
    """`severity`: the worst that it may have. `ends`: the fact that closes it. `informational`: people may close it.

    `next_step` is prose; `command` is the terminal command for it, and `page` the title and the address of the
    console's page. `opens_after_s`: how long it must be so (see `conditions`; the writer's machine counts by
    itself). What delays emergencies opens within the 30 s that are usually promised for them. `rules`: how Prometheus
    sees it.
    """

    severity: Severity
    meaning: str
    next_step: str
    ends: str
    informational: bool = False
    command: str = ""
    opens_after_s: float = 0.0
    page: tuple[str, str] | None = None
    rules: tuple[MetricRule, ...] = ()


def emergencies_that_waited(title: str, ms: int) -> tuple[str, str]:
    """The console's page of those that waited for so long."""
    return title, f"changes?priority_class=EMERGENCY&waited_s={ms // 1000}"


_WAITING_EMERGENCIES = ("The waiting emergencies", "changes?priority_class=EMERGENCY&outcome=OUTSTANDING")
_SESSIONS = ("Sessions and workers", "sessions")

KINDS: dict[str, AlertKind] = {
    "ban": AlertKind(
        "critical",
        "OldHost banned us: nothing can be sent, not even emergencies.",
        "Tell the people who reported the waiting emergencies. Sending resumes by itself after the ban; if there is "
        "also a halt, resolve it before the ban ends.",
        "OldHost takes operations again",
        page=_WAITING_EMERGENCIES,
        rules=(
            MetricRule(
                "Banned",
                'oldhost_sync_writer_state{state="banned"} == 1',
                "{{ $labels.host }} banned us: nothing reaches it, not even emergencies.",
            ),
        ),
    ),
    "halted": AlertKind(
        "critical",
        "Sending is halted: OldHost and the ledger contradict each other, or one of our own rules was broken.",
        "Read the reason, look at OldHost itself, then decide: adopt OldHost's count, or resend.",
        "an operator resolved it, and OldHost agrees with the ledger",
        command="oldhost-sync resolve adopt|resend",
        page=("Compare both decisions", "halt"),
        rules=(
            MetricRule(
                "Halted",
                'oldhost_sync_writer_state{state="halted"} == 1',
                "Sending to {{ $labels.host }} is halted until an operator decides.",
            ),
        ),
    ),
    "emergency-late": AlertKind(
        "critical",
        "Emergencies have had no fate for half of the promised time (warning) or for all of it (critical).",
        "Call the people who reported them; then fix the cause that the message names.",
        "no emergency was late in the last 30 s",
        command="oldhost-sync find UNIT",
        page=emergencies_that_waited("The late emergencies", USUAL_PROMISES.warning_ms),
        rules=(
            MetricRule(
                "EmergencyLate",
                'oldhost_sync_oldest_waiting_seconds{priority_class="EMERGENCY"} > oldhost_sync_promised_seconds',
                "An emergency has waited for {{ $labels.host }} longer than promised.",
            ),
            MetricRule(
                "PromiseBroken",
                "increase(oldhost_sync_promise_breaches_total[15m]) > 0",
                "A change reached {{ $labels.host }} later than promised ({{ $labels.promise }}).",
                section="an-emergency-is-late",
            ),
        ),
    ),
    "emergency-blocked": AlertKind(
        "critical",
        "Emergencies wait because of a pause, a ban or a halt; the message has their number.",
        "Tell the people who reported them; end the pause or the halt if you are allowed to.",
        "the cause is over, or no emergency waits",
        page=_WAITING_EMERGENCIES,
    ),
    "no-progress": AlertKind(
        "critical",
        "No change has got its fate for 20 s although some could be sent; the message has the last reason.",
        'Check OldHost, the network to it, and MariaDB. If it says "OldHost serves another connection", look for a '
        "worker whose /healthz does not answer, and kill it: a frozen process keeps the only connection. If there is "
        "none, ask OldHost's operators to close it. The writer keeps trying.",
        "a change got its fate, or nothing can be sent any more",
        command="oldhost-sync status",
        opens_after_s=NO_PROGRESS_MS / 1000,
        page=_SESSIONS,
    ),
    "no-session": AlertKind(
        "critical",
        "Five attempts to open a session with OldHost failed, while nothing waits.",
        "Check that OldHost runs and that its address is right, before changes arrive.",
        "a session is open",
        page=_SESSIONS,
    ),
    "goes-nowhere": AlertKind(
        "critical",
        "OldHost neither applies nor rejects this change, again and again. It waits apart, or everything waits behind "
        "it.",
        "Ask OldHost's operators why it does not take this operation. If it waits apart, retry it now, or discard it; "
        "if it has the next nonce, nothing can skip it.",
        "the result of that operation is known, or an operator has decided",
        command="oldhost-sync dead-letters retry ID",
        page=_SESSIONS,
    ),
    "answers-lost": AlertKind(
        "critical",
        "Three sends in a row brought no readable answer, so each operation takes the whole settle time.",
        "Check what is between us and OldHost: a proxy, a firewall, a changed protocol.",
        "a readable answer arrived",
        page=_SESSIONS,
        rules=(
            MetricRule(
                "LostReplies",
                "sum by (host) (increase(oldhost_sync_lost_replies_total[10m])) > 10",
                "Many replies of {{ $labels.host }} are lost; each costs a new session, or the settle time.",
                severity="warning",
            ),
        ),
    ),
    "sessions-broken": AlertKind(
        "warning",
        "OldHost's answers ended five sessions within ten minutes, although changes get their fates in between.",
        "Read the reason in the message. A gap or an expected nonce that contradicts the one before comes from a stale "
        "replica or a proxy; other answers from a firewall, or from a changed protocol.",
        "ten minutes passed without another",
        page=_SESSIONS,
    ),
    "writer-closed": AlertKind(
        "critical",
        "The writer's run was terminated, cancelled, or failed; the message says how and by whom.",
        "Nothing: the relay starts a new run at once. If runs end repeatedly, look at them in Temporal's UI.",
        "the writer runs",
        rules=(
            MetricRule(
                "NoWriter",
                'oldhost_sync_writer_state{state="no-writer"} == 1',
                "The writer of {{ $labels.host }} does not run, or no worker takes its tasks.",
                lasts="1m",
                section="the-writer-does-not-run",
            ),
        ),
    ),
    "paused-in-temporal": AlertKind(
        "critical",
        "A person paused the writer's run, or an activity of it, with Temporal's tools; the message says which, "
        "and who. Changes are still accepted, unless it is the activity that records them.",
        "Unpause it there, or ask who paused it. To stop sending, use our own pause: it can be seen and resumed here.",
        "the writer runs",
        command="temporal workflow unpause -w sync-writer:HOST",
    ),
    "writer-failing": AlertKind(
        "critical",
        "The writer's workflow task fails, or a run of somebody else has the writer's ID; the message says which.",
        "If its task is not finished in time, look first at the workers and at the network between them and Temporal: "
        "restart one that is frozen. Otherwise deploy the release that this run needs. Last, terminate the run; the "
        "relay starts another.",
        "the writer runs",
        opens_after_s=6,
    ),
    "no-worker": AlertKind(
        "critical",
        "No worker takes the writer's tasks.",
        "Start one, or find out why running ones don't poll: frozen, another namespace or address, all threads busy. "
        "If the message names a version of a worker deployment, run its command. If they do poll, and last of all, "
        "terminate the run in Temporal.",
        "a worker took the writer's tasks",
        command="oldhost-sync worker",
        opens_after_s=6,
        page=_SESSIONS,
        rules=(
            MetricRule(
                "NoWorker",
                'time() - max(oldhost_sync_role_looked_at_seconds{role="worker"}) > 60 or '
                'absent(oldhost_sync_role_looked_at_seconds{role="worker"})',
                "No worker has shown itself at work for a minute.",
                lasts="1m",
            ),
        ),
    ),
    "no-relay": AlertKind(
        "critical",
        "Changes wait, and no relay hands them to this host's writer.",
        "Start one, or name the host in the relays' settings. Nothing is lost: it hands over what waits.",
        "a relay serves the host, or nothing waits",
        command="oldhost-sync relay",
        opens_after_s=20,
        page=_SESSIONS,
        rules=(
            MetricRule(
                "NoRelay",
                "absent(oldhost_sync_writer_state)",
                "No relay is active: changes are accepted, but not handed to the writer.",
                lasts="2m",
                section="a-relay-is-stuck",
            ),
            MetricRule(
                "UnservedHost",
                "max by (host) (oldhost_sync_unserved_host) > 0",
                "Changes of {{ $labels.host }} wait, and no relay serves it.",
                section="a-relay-is-stuck",
            ),
        ),
    ),
    "relay-failing": AlertKind(
        "critical",
        "A relay of this host runs, but can't hand changes to its writer.",
        "Read the message: it has the reason, for example a table that is locked or was changed, or a Temporal that "
        "takes no signals. Nothing is lost: it hands over what waits as soon as it can.",
        "the relay works again",
        opens_after_s=12,
        rules=(
            MetricRule(
                "RelayFailing",
                'max by (host) (oldhost_sync_relay_condition{condition=~"writer away|database away"}) == 1',
                "A relay of {{ $labels.host }} can't look for changes, or can't hand them to the writer.",
                lasts="1m",
            ),
        ),
    ),
    "temporal-away": AlertKind(
        "critical",
        "Temporal does not answer while changes wait; changes are still accepted.",
        "Restore Temporal, or correct TEMPORAL_ADDRESS.",
        "Temporal answers, or nothing waits",
        opens_after_s=10,
    ),
    "database-far": AlertKind(
        "critical",
        "A worker is so far from MariaDB that OldHost waits for it (critical: so far that nothing may be sent).",
        "Run the workers beside MariaDB, or find out why the network between them is slow. The message names the "
        "worker and the distance.",
        "the workers' round trips to MariaDB are short",
        opens_after_s=15,
        page=_SESSIONS,
    ),
    "dead-letters": AlertKind(
        "critical",
        "OldHost rejected changes for this reason, and no operator has decided on them; critical above 20.",
        "Fix the cause, then retry; or send corrected copies, or discard. Until then, changes held behind them wait.",
        "all of them are decided",
        command="oldhost-sync dead-letters list",
        page=("Dead letters by reason", "dead-letters"),
        rules=(
            MetricRule(
                "DeadLetters",
                "oldhost_sync_dead_letters > 0",
                "Changes that {{ $labels.host }} rejected wait for a decision.",
                severity="warning",
                lasts="10m",
            ),
        ),
    ),
    "forecast": AlertKind(
        "warning",
        "Waiting changes will reach OldHost later than promised.",
        "Look at the plan from now; then reduce the load, or tell those who rely on the promise.",
        "the forecast says that the promise will be kept",
        command="oldhost-sync plan --from-now",
        opens_after_s=FORECAST_MS / 1000,
        page=("The plan from now", "plan?from_now=true"),
        rules=(
            MetricRule(
                "ConsistencyAtRisk",
                'oldhost_sync_oldest_waiting_seconds{priority_class=~"TXN|LWW"} > 0.75 * oldhost_sync_promised_seconds',
                "A {{ $labels.priority_class }} change has waited for {{ $labels.host }} for three "
                "quarters of the promised time.",
                severity="warning",
            ),
        ),
    ),
    "signals-lost": AlertKind(
        "critical",
        "The history of an ended run is gone, with the signals that the run had not read (warning: perhaps none).",
        "Applications that send signals must look up their keys and send missing changes again.",
        "a complete recovery found every history, or a person closed it",
        informational=True,
    ),
    "schedule-failed": AlertKind(
        "critical",
        "Scheduled changes could not be recorded when due, because their values are invalid; they are withdrawn.",
        "Read the message, correct the change and submit it again.",
        _LOOKED_AT,
        informational=True,
        page=("Scheduled changes", "scheduled"),
    ),
    "submission-refused": AlertKind(
        "warning",
        "An application sent invalid changes by signal or update; they are kept as REFUSED and never sent.",
        "Tell the application's developers; the text of each change says what was wrong.",
        _LOOKED_AT,
        informational=True,
        page=("The refused changes", "changes?outcome=REFUSED"),
    ),
    "unreadable-signal": AlertKind(
        "warning",
        "The writer received a signal, or was started with an input, that it can't read.",
        "Find the sender (docs/messages.md has the format); no change of ours is lost.",
        _LOOKED_AT,
        informational=True,
    ),
    "strays": AlertKind(
        "info",
        "The sweep found outstanding changes that the writer did not hold; it sends them now.",
        "Nothing. If it happens repeatedly, report it: a change that the relay has handed over is missing.",
        _LOOKED_AT,
        informational=True,
    ),
    "retention-behind": AlertKind(
        "warning",
        "Old rows are deleted more slowly than new ones become old, or clocks are a day apart.",
        "Read the message: it names MariaDB's error, its buffer pool, or a clock to set.",
        "a pass of retention ended",
        opens_after_s=7200,
    ),
    "over-quota": AlertKind(
        "critical",
        "A token sends more than its quota, and is refused (critical: emergencies are refused).",
        "Ask the application's developers what it does, and call the people who reported refused emergencies. Raise "
        "the quota if the application needs more.",
        _LOOKED_AT,
        informational=True,
        command="oldhost-sync tokens usage",
    ),
    "writes-refused": AlertKind(
        "critical",
        "For half a minute or longer changes could not be recorded: the API refuses them, or signalled ones wait.",
        "Read the message: it has the reason, for example a full table (its disk) or a locked row. Mend the "
        "database; nothing was lost if the applications repeat what the API refused. Signalled changes are recorded "
        "by themselves.",
        "writes are taken again, or a person closed it",
        informational=True,
        opens_after_s=30,
        rules=(
            MetricRule(
                "WritesRefused",
                'sum(increase(oldhost_sync_api_requests_total{method!="GET",status=~"500|503"}[1m])) '
                '/ sum(increase(oldhost_sync_api_requests_total{method!="GET"}[1m])) > 0.1',
                "The API can't record changes; applications are told to repeat them.",
                lasts="2m",
            ),
        ),
    ),
    "settlement-stopped": AlertKind(
        "warning",
        "The settlement file of a day can't be written, or does not match the ledger; a day without one is not pruned.",
        "Read the message: it names the folder, its disk, a file to restore from a copy, or operations without an end.",
        "settlement continues",
        command="oldhost-sync settlement verify",
        opens_after_s=20,
    ),
    "webhook-late": AlertKind(
        "warning",
        "A webhook has not accepted a fate for five minutes, or answered 410, which disables it.",
        "Read the message, and mend the receiver; nothing is lost meanwhile. After a 410, or to go on behind a fate "
        "that it never accepts, replay from that cursor.",
        "it accepts fates again, or it is no longer in SYNC_WEBHOOKS_FILE",
        command="oldhost-sync webhooks",
        opens_after_s=240,
    ),
    "mapping-changed": AlertKind(
        "info",
        "OldHost has states that an earlier mapping made. Changes are sent by the mapping of now.",
        "If OldHost is to have all states in the new form, request a resync of all units.",
        "each was sent by the mapping of now, or a resync of all ended",
        command="oldhost-sync resync --all",
    ),
}

# What only Prometheus tells of: no process of ours could, or nobody must wake up.
OTHER_RULES: tuple[MetricRule, ...] = (
    MetricRule(
        "NoApi",
        'absent(oldhost_sync_role_looked_at_seconds{role="api"})',
        "No API answers: applications can't record changes.",
        lasts="1m",
        section="the-api-does-not-answer",
    ),
    MetricRule(
        "RelayStuck",
        'time() - oldhost_sync_role_looked_at_seconds{role="relay"} > 60',
        "A relay answers, but has not checked itself for a minute.",
        severity="warning",
        lasts="1m",
        section="a-relay-is-stuck",
    ),
    MetricRule(
        "NoFigures",
        "max by (host) (oldhost_sync_relay_condition) unless max by (host) (oldhost_sync_writer_state)",
        "No relay shows the state of {{ $labels.host }}: the other rules can't fire for it.",
        lasts="2m",
        section="a-relay-is-stuck",
    ),
    MetricRule(
        "UndeliveredAlerts",
        "max by (host) (oldhost_sync_undelivered_alerts) > 0",
        "The webhook does not accept the alerts of {{ $labels.host }}.",
        severity="warning",
        lasts="2m",
        section="the-webhook",
    ),
    MetricRule(
        "BooksImbalance",
        "oldhost_sync_books_imbalance > 0",
        "The books of {{ $labels.host }} do not balance: a rule of ours is broken.",
        section="the-books-do-not-balance",
    ),
    MetricRule(
        "BooksUnchecked",
        "max by (host) (oldhost_sync_writer_state) unless max by (host) (oldhost_sync_books_imbalance)",
        "The books of {{ $labels.host }} could not be checked for half an hour.",
        severity="warning",
        lasts="30m",
        section="the-books-do-not-balance",
    ),
    MetricRule(
        "PausedLong",
        "oldhost_sync_pause_seconds > 3600",
        "{{ $labels.host }} has been paused for more than an hour.",
        severity="warning",
        section="what-the-states-mean",
    ),
)


def runbook(kind: str) -> str:
    """The section of the documentation about this kind."""
    return f"docs/operations.md#alert-{kind}"


def metric_rules() -> list[tuple[MetricRule, str]]:
    """All rules of Prometheus, each with its address in the documentation."""
    of_kinds = [(rule, rule.section or f"alert-{kind}") for kind, about in KINDS.items() for rule in about.rules]
    found = [*of_kinds, *((rule, rule.section) for rule in OTHER_RULES)]
    return [(rule, f"docs/operations.md#{section}") for rule, section in found]


def worse(one: str, other: str) -> str:
    """The worse of two severities."""
    return max(one, other, key=SEVERITIES.index)


def grew(before: int, after: int) -> bool:
    """Whether a count has reached the next power of ten, so that the alert is sent again."""
    return len(str(max(after, 1))) > len(str(max(before, 1)))


def may_close(kind: str) -> bool:
    """Whether a person may close an open alert of this kind. Not if the product itself checks whether the cause exists.

    Only a person can close an alert of a kind that this release does not know.
    """
    return kind not in KINDS or KINDS[kind].informational
