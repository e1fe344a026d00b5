"""The kinds of alerts: how bad each may get, what it means, what to do next, and what ends it.

`docs/operations.md` has a section of each (`runbook`), with these words; a test holds both together. The product closes
an alert when it sees that the cause is gone. People may close only what is informational: what was told and can't be
seen to end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

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
    "writer-closed",
    "writer-failing",
    "no-worker",
    "temporal-away",
    "dead-letters",
    "forecast",
    "signals-lost",
    "schedule-failed",
    "submission-refused",
    "unreadable-signal",
    "strays",
    "retention-behind",
    "over-quota",
    "settlement-stopped",
]

# What the writer tells of: also each dead letter, which people see grouped by OldHost's reason.
Told = Kind | Literal["dead-letter"]

# An informational alert that hears no more of its cause for so long closes by itself.
QUIET_DAYS = 7
_LOOKED_AT = f"a person closed it, or {QUIET_DAYS} days passed without another"


@dataclass(frozen=True, slots=True)
class AlertKind:
    """`severity`: the worst that it may have. `ends`: the fact that closes it. `informational`: people may close it.

    `next_step` is in words; `command` is what helps with it at the terminal (the console has links of its own).
    """

    severity: Severity
    meaning: str
    next_step: str
    ends: str
    informational: bool = False
    command: str = ""


KINDS: dict[str, AlertKind] = {
    "ban": AlertKind(
        "critical",
        "OldHost banned us: nothing can be sent, emergencies neither.",
        "Tell the people behind waiting emergencies. It goes on by itself after the ban; decide a halt before that.",
        "OldHost takes operations again",
    ),
    "halted": AlertKind(
        "critical",
        "Sending is halted: OldHost and the ledger contradict each other, or a rule of ours was broken.",
        "Read the reason, look at OldHost itself, then decide: adopt its count, or resend.",
        "an operator resolved it, and OldHost agrees with the ledger",
        command="oldhost-sync resolve adopt|resend",
    ),
    "emergency-late": AlertKind(
        "critical",
        "Emergencies have had no fate for half of the promised 30 s (warning) or for all of it (critical).",
        "Call the people who reported them; then mend the cause that the message names.",
        "none has been late for 30 s",
        command="oldhost-sync find UNIT",
    ),
    "emergency-blocked": AlertKind(
        "critical",
        "So many emergencies wait behind a pause, a ban or a halt.",
        "Tell the people behind them; end the pause or the halt if you may.",
        "its cause is over, or none waits",
    ),
    "no-progress": AlertKind(
        "critical",
        "No change has got its fate for 20 s though some could go; the message has the last reason.",
        "Look at OldHost, the network to it, and MariaDB. The writer keeps trying.",
        "a change got its fate, or nothing could go any more",
        command="oldhost-sync status",
    ),
    "no-session": AlertKind(
        "critical",
        "Five attempts brought no session with OldHost, and nothing waits.",
        "Look whether OldHost runs and SYNC_OLDHOST_URL is right, before changes come.",
        "a session is open",
    ),
    "goes-nowhere": AlertKind(
        "critical",
        "Five sessions in a row could not learn what OldHost makes of this change; everything waits behind it.",
        "Ask OldHost's operators why it does not answer this operation; no command gives it up.",
        "that operation ended",
    ),
    "answers-lost": AlertKind(
        "critical",
        "Three sends in a row brought no answer that can be read, so each operation costs the settle time.",
        "Look what is between us and OldHost: a proxy, a firewall, a changed protocol.",
        "an answer came",
    ),
    "writer-closed": AlertKind(
        "critical",
        "The writer's run was terminated, cancelled, or failed; the message says how and by whom.",
        "Nothing: the relay starts it at once. If it ends repeatedly, look at the run in Temporal's UI.",
        "the writer runs",
    ),
    "writer-failing": AlertKind(
        "critical",
        "The writer's workflow task fails; the message has the error.",
        "Deploy the release that this run needs, or terminate the run; the relay starts another.",
        "the writer runs",
    ),
    "no-worker": AlertKind(
        "critical",
        "No worker takes the writer's tasks.",
        "Start one, or look why those that run don't poll: frozen, another namespace or address, all threads busy.",
        "a worker took the writer's tasks",
        command="oldhost-sync worker",
    ),
    "temporal-away": AlertKind(
        "critical",
        "Temporal does not answer while changes wait; changes are accepted meanwhile.",
        "Bring it back, or correct TEMPORAL_ADDRESS.",
        "Temporal answers, or nothing waits",
    ),
    "dead-letters": AlertKind(
        "critical",
        "OldHost rejected changes for this reason, and nobody has decided on them; critical above 20.",
        "Mend the cause, then retry; or send corrected copies, or discard. What is held behind them waits.",
        "none of them is undecided any more",
        command="oldhost-sync dead-letters list",
    ),
    "forecast": AlertKind(
        "warning",
        "What waits will break a promise before it has reached OldHost.",
        "Look at the plan from now: take load away, or tell those who rely on the promise.",
        "the promise will be kept",
        command="oldhost-sync plan --from-now",
    ),
    "signals-lost": AlertKind(
        "critical",
        "The history of a run that ended is gone, with the signals that it had not read (warning: perhaps none).",
        "Applications that signal must look for their keys and send again what is missing.",
        "a complete recovery found every history, or a person closed it",
        informational=True,
    ),
    "schedule-failed": AlertKind(
        "critical",
        "Scheduled changes could not be recorded when they were due, because of their own values; they are withdrawn.",
        "Read the message, correct the change and submit it again.",
        _LOOKED_AT,
        informational=True,
    ),
    "submission-refused": AlertKind(
        "warning",
        "An application signalled changes that make no sense; they are kept as REFUSED and never sent.",
        "Tell the application's people; the changes' own texts say what was wrong.",
        _LOOKED_AT,
        informational=True,
    ),
    "unreadable-signal": AlertKind(
        "warning",
        "The writer was sent or started with something that it can't read.",
        "Find who sends it (docs/messages.md has the form); nothing of ours is lost.",
        _LOOKED_AT,
        informational=True,
    ),
    "strays": AlertKind(
        "info",
        "The sweep found outstanding changes that the writer did not hold; it sends them now.",
        "Nothing. If it comes again and again, report it: something loses changes between relay and writer.",
        _LOOKED_AT,
        informational=True,
    ),
    "retention-behind": AlertKind(
        "warning",
        "What is old is not forgotten as quickly as it ends, or clocks are a day apart.",
        "Read the message: MariaDB's error, its buffer pool, or a clock to set.",
        "a pass of retention ended",
    ),
    "over-quota": AlertKind(
        "critical",
        "A token sends more than its quota, and is refused (critical: emergencies are).",
        "Ask the application's people what it does, and call about refused emergencies. Raise the quota if it may.",
        _LOOKED_AT,
        informational=True,
        command="oldhost-sync tokens usage",
    ),
    "settlement-stopped": AlertKind(
        "warning",
        "The settlement file of a day can't be written, or does not fit the ledger; what has none is not pruned.",
        "Read the message: the folder, its disk, a file to put back from a copy; or operations without an end.",
        "settlement goes on",
        command="oldhost-sync settlement verify",
    ),
}


def runbook(kind: str) -> str:
    """Where the repository tells about this kind."""
    return f"docs/operations.md#alert-{kind}"


def worse(one: str, other: str) -> str:
    """The worse of two severities."""
    return max(one, other, key=SEVERITIES.index)


def grew(before: int, after: int) -> bool:
    """Whether a count has reached another power of ten, which people hear of."""
    return len(str(max(after, 1))) > len(str(max(before, 1)))


def may_close(kind: str) -> bool:
    """Whether a person may close an open alert of this kind: not what the product itself sees to be true still.

    A kind of another release is nobody's to close but a person's.
    """
    return kind not in KINDS or KINDS[kind].informational
