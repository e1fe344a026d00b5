"""The verdict, from outside: receipts of the applications, OldHost's own journal, and the database by plain SQL.

It imports nothing of the product, so that a mistake there can't be made here again. Three witnesses are compared:
what the API answered, what OldHost did, and what the database says. What can't be explained is a violation.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pymysql

from tests.faults import further_rules

Key = tuple[str, str, str]
Row = dict[str, Any]


@dataclass
class Evidence:
    """Everything the verdict rests on. `receipts`: dicts of the applications; `journal`, `stats`,
    `records`: OldHost's."""

    receipts: list[Row]
    journal: list[Row]
    stats: Row
    records: list[Row]
    changes: list[Row]
    requests: list[Row]
    ledger: Row
    shadow: list[Row]
    audit: list[Row]
    bans_ordered: int = 0
    signals: list[Row] = field(default_factory=list)
    locks: list[Row] = field(default_factory=list)
    archived: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_id = {row["id"]: row for row in self.changes}
        self.by_key = {row["idempotency_key"]: row for row in self.changes}
        self.receipt_of = {receipt["key"]: receipt for receipt in self.receipts}
        self.applied = [entry for entry in self.journal if entry["outcome"] == "applied"]
        self.rejected = [entry for entry in self.journal if entry["outcome"] == "rejected"]
        self.applied_keys = Counter(entry["body"]["idempotency_key"] for entry in self.applied)
        self.rejected_keys = Counter(entry["body"]["idempotency_key"] for entry in self.rejected)
        self.retried = {row["change_id"] for row in self.audit if row["action"] == "retry"}
        # A lost 422 can't be told from a lost 200 (docs/architecture.md): OldHost rejected it, MariaDB says applied.
        self.lost_rejections = {
            row["change_id"]
            for row in self.requests
            if str(row["answer"]).startswith("unconfirmed") and self._was_rejected(row)
        }
        # Nobody but an operator knows whether OldHost has these; some were sent again.
        self.unsure = {row["id"] for row in self.changes if row["unproven"] and row["outcome"] != "APPLIED"}
        self.unsure |= {row["change_id"] for row in self.archived if row["status"] == "UNSURE"}
        self.unsure |= {row["change_id"] for row in self.audit if row["action"] == "confirm"}
        # OldHost refused these without using their nonces; after some tries each is a letter. One that an operator has
        # retried since has no other trace.
        self.set_apart = {
            row["change_id"]
            for row in self.archived
            if row["status"] == "SENT" and row["reason"].startswith(("set apart", "retried by an operator"))
        }

    def _was_rejected(self, request: Row) -> bool:
        return any(entry["nonce"] == request["nonce"] for entry in self.rejected)


@dataclass
class Verdict:
    """Violations by rule, and figures to print beside them."""

    violations: dict[str, list[str]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not any(self.violations.values())

    def table(self) -> str:
        rows = [(name, str(len(found))) for name, found in self.violations.items()]
        rows += [(name, str(value)) for name, value in self.figures.items()]
        width = max(len(name) for name, _ in rows)
        lines = [f"  {name:<{width}}  {value}" for name, value in rows]
        wrong = [f"  ! {name}: {text}" for name, found in self.violations.items() for text in found[:5]]
        return "\n".join([*lines, *wrong, f"  verdict: {'GOOD' if self.good else 'BAD'}"])


_UNIT = "'unit'"


def read_database(connection: pymysql.Connection[Any], shown: Callable[[str, str], str]) -> Row:
    """What the verdict needs of the database, in one consistent look.

    `shown`: the product's SQL for the sync status that it shows of the entities of a table, whose type an expression
    says.
    """
    tables = {
        "changes": "SELECT id, idempotency_key, entity_type, entity_id, event_type, payload, priority_class, "
        "created_at, relayed_at, processed_at, outcome, superseded_by, nonce, error, unproven FROM outbox_events "
        "ORDER BY id",
        "requests": "SELECT nonce, idempotency_key, change_id, status, sends, answer, body FROM nonce_requests "
        "ORDER BY nonce",
        "archived": "SELECT nonce, change_id, status, reason FROM nonce_requests_archive ORDER BY id",
        "ledger": "SELECT next_nonce, last_applied_nonce, epoch, halted FROM nonce_ledger",
        "units": "SELECT 'unit' AS entity_type, id AS entity_id, state, newest_change_id, "
        f"{shown('units', _UNIT)} AS sync_status FROM units",
        "entities": "SELECT entity_type, id AS entity_id, state, newest_change_id, "
        f"{shown('entities', 'entities.entity_type')} AS sync_status FROM entities",
        "audit": "SELECT action, change_id FROM operator_audit ORDER BY id",
        "alerts": "SELECT kind, severity, message, is_open FROM alerts ORDER BY id",
    }
    found: Row = {}
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        for name, statement in tables.items():
            cursor.execute(statement)
            found[name] = list(cursor.fetchall())
        cursor.execute("COMMIT")
    return found


def gather(
    receipts: list[Row],
    oldhost: Callable[[str], Row],
    database: Row,
    *,
    bans_ordered: int = 0,
    signals: Sequence[Row] = (),
    locks: Sequence[Row] = (),
) -> Evidence:
    """`oldhost(path)` asks the admin port. `signals`: receipts of those who only signal; `locks`:
    rows that others held."""
    return Evidence(
        receipts=receipts,
        journal=oldhost("/journal?since=0&limit=1000000")["entries"],
        stats=oldhost("/stats"),
        records=oldhost("/records")["records"],
        changes=database["changes"],
        requests=database["requests"],
        ledger=database["ledger"][0],
        shadow=database["units"] + database["entities"],
        audit=database["audit"],
        archived=database["archived"],
        bans_ordered=bans_ordered,
        signals=list(signals),
        locks=list(locks),
    )


def judge(evidence: Evidence) -> Verdict:
    """Every rule over all the evidence."""
    rules: dict[str, Callable[[Evidence], Iterator[str]]] = {
        "replays at OldHost": lambda e: iter([f"{e.stats['replays']} replays"] if e.stats["replays"] else []),
        "gaps at OldHost": lambda e: iter([f"{e.stats['gaps']} gaps"] if e.stats["gaps"] else []),
        "bans nobody ordered": _bans,
        "holes in the nonces": _nonces,
        "losses": _losses,
        "duplicates": _duplicates,
        "order violations": _order,
        "last states that differ": _last_states,
        "changes without a fate": _fates,
        "fates that OldHost contradicts": _contradictions,
        "answers without a row, rows without an answer": _answers,
        "unknown ends": _unknown,
        "bytes that changed": _bytes,
        "books that do not balance": _books,
        "shadow states that are wrong": _shadow,
        "ledger": _ledger,
        "signals not recorded exactly once (I13)": further_rules.signals_recorded,
        "fields that differ": further_rules.field_states,
        "emergencies that waited for rows of others (I10)": further_rules.waited_for_rows,
    }
    verdict = Verdict({name: list(rule(evidence)) for name, rule in rules.items()})
    verdict.figures = _figures(evidence)
    return verdict


# ------------------------------------------------------------------------------------------------------------- rules


def _bans(evidence: Evidence) -> Iterator[str]:
    if evidence.stats["bans"] != evidence.bans_ordered:
        yield f"{evidence.stats['bans']} bans, {evidence.bans_ordered} ordered"


def _nonces(evidence: Evidence) -> Iterator[str]:
    """Accepted nonces are exactly 1..n: those applied, and those whose rejection used them up."""
    used = [entry["nonce"] for entry in evidence.journal if entry["outcome"] == "applied" or _consumed(entry)]
    for expected, nonce in enumerate(used, start=1):
        if nonce != expected:
            yield f"operation {expected} has nonce {nonce}"
            return
    if evidence.stats["expected_nonce"] != len(used) + 1:
        yield f"OldHost expects {evidence.stats['expected_nonce']} after {len(used)} operations"


def _consumed(entry: Row) -> bool:
    return bool(entry["outcome"] == "rejected" and entry["expected_nonce"] == entry["nonce"] + 1)


def _losses(evidence: Evidence) -> Iterator[str]:
    """I2: an accepted EMERGENCY or TXN is applied once, or an operator gave it up."""
    for receipt in evidence.receipts:
        if receipt["state"] != "accepted" or receipt["priority_class"] == "LWW":
            continue
        row = evidence.by_key.get(receipt["key"])
        given_up = row is not None and (
            row["outcome"] in {"DEAD", "DISCARDED"} or row["id"] in evidence.lost_rejections
        )
        if not evidence.applied_keys[receipt["key"]] and not given_up:
            yield f"{receipt['priority_class']} {receipt['key']} (change {receipt['change_id']}) never arrived"


def _duplicates(evidence: Evidence) -> Iterator[str]:
    for key, count in evidence.applied_keys.items():
        if count > 1 and (evidence.by_key[key]["id"] not in evidence.unsure & evidence.retried):
            yield f"{key} was applied {count} times"


def _order(evidence: Evidence) -> Iterator[str]:
    """I4, but for what an operator retried and the TXN changes that were held behind a rejected one."""
    by_entity: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for entry in evidence.applied:
        body = entry["body"]
        by_entity[body["entity_type"], body["entity_id"]].append(body)
    held = {(entry["body"]["entity_type"], entry["body"]["entity_id"]) for entry in evidence.rejected}
    letters = evidence.unsure | evidence.set_apart
    held |= {(row["entity_type"], row["entity_id"]) for row in evidence.changes if row["id"] in letters}
    for entity, bodies in by_entity.items():
        sent = [body for body in bodies if body["event_id"] not in evidence.retried]
        lanes = [sent]
        if entity in held:
            txn = [body for body in sent if _class(evidence, body) == "TXN"]
            lanes = [txn, [body for body in sent if _class(evidence, body) != "TXN"]]
        for lane in lanes:
            ids = [body["event_id"] for body in lane]
            if ids != sorted(ids):
                yield f"{entity}: {ids}"


def _class(evidence: Evidence, body: Row) -> str:
    row = evidence.by_id.get(body["event_id"])
    return row["priority_class"] if row else "?"


def _last_states(evidence: Evidence) -> Iterator[str]:
    """I3: OldHost ends each key with the last accepted state, unless that one was rejected."""
    last: dict[Key, Row] = {}
    for row in evidence.changes:
        if row["priority_class"] == "LWW":
            last[_key(row)] = row
    at_oldhost = {(one["entity_type"], one["entity_id"], one["event_type"]): one for one in evidence.records}
    for key, row in last.items():
        if row["outcome"] in {"DEAD", "DISCARDED"} or row["id"] in evidence.lost_rejections:
            continue
        record = at_oldhost.get(key)
        if record is None or _payload(record["body"]) != _json(row["payload"]):
            yield f"{key}: change {row['id']} ({row['outcome']}) is not what OldHost has"


def _fates(evidence: Evidence) -> Iterator[str]:
    for row in evidence.changes:
        if row["outcome"] is None:
            yield f"change {row['id']} ({row['priority_class']}, relayed: {row['relayed_at'] is not None}) has no fate"


def _contradictions(evidence: Evidence) -> Iterator[str]:
    """APPLIED exactly when OldHost's journal has it, under that nonce."""
    nonce_of = {entry["body"]["idempotency_key"]: entry["nonce"] for entry in evidence.applied}
    for row in evidence.changes:
        at_oldhost = nonce_of.get(row["idempotency_key"])
        excused = row["unproven"] and row["id"] in evidence.lost_rejections | evidence.unsure
        if row["outcome"] == "APPLIED" and not excused and at_oldhost != row["nonce"]:
            yield f"change {row['id']}: APPLIED with nonce {row['nonce']}, OldHost has {at_oldhost}"
        if row["outcome"] != "APPLIED" and at_oldhost is not None and row["id"] not in evidence.unsure:
            yield f"change {row['id']}: {row['outcome']}, but OldHost applied it with nonce {at_oldhost}"
        refused = evidence.rejected_keys[row["idempotency_key"]] or row["id"] in evidence.set_apart
        if row["outcome"] == "DEAD" and not row["unproven"] and not refused:
            yield f"change {row['id']}: DEAD, but OldHost never rejected it"


def _answers(evidence: Evidence) -> Iterator[str]:
    """A 2xx was given ⇔ the row exists, with that id and payload (an abandoned one may or may not)."""
    for receipt in evidence.receipts:
        row = evidence.by_key.get(receipt["key"])
        if receipt["state"] != "accepted":
            continue
        if row is None or row["id"] != receipt["change_id"] or _json(row["payload"]) != receipt["payload"]:
            yield f"{receipt['key']} was accepted as change {receipt['change_id']}, its row says otherwise"
    signalled = {signal["note"] for signal in evidence.signals}
    for row in evidence.changes:
        if row["idempotency_key"] not in evidence.receipt_of and _json(row["payload"]).get("note") not in signalled:
            yield f"change {row['id']} was never asked for"


def _unknown(evidence: Evidence) -> Iterator[str]:
    for receipt in evidence.receipts:
        if receipt["state"] not in {"accepted", "abandoned"}:
            yield f"{receipt['key']}: {receipt['state']} after answers {receipt['answers']}"
    for entry in evidence.journal:
        if entry["outcome"] not in {"applied", "rejected"}:
            yield f"OldHost's journal has {entry['outcome']} at nonce {entry['nonce']}"
        elif entry["body"]["event_id"] not in evidence.by_id:
            yield f"OldHost got change {entry['body']['event_id']}, which nobody recorded"


def _bytes(evidence: Evidence) -> Iterator[str]:
    """A nonce is bound to one body for ever, and OldHost got that one, which says what was accepted."""
    bound = {row["nonce"]: row for row in evidence.requests}
    for entry in evidence.applied:
        row = bound.get(entry["nonce"])
        if row is None or json.loads(row["body"]) != entry["body"]:
            yield f"nonce {entry['nonce']}: OldHost got other bytes than the ledger has"
        change = evidence.by_id.get(entry["body"]["event_id"])
        if change is not None and _payload(entry["body"]) != _json(change["payload"]):
            yield f"nonce {entry['nonce']}: change {change['id']} arrived with another payload"


def _books(evidence: Evidence) -> Iterator[str]:
    """I5: every change counts once, and each fate that took no nonce has its reason in another change of its key."""
    for row in evidence.changes:
        if row["outcome"] == "SUPERSEDED":
            newer = evidence.by_id.get(row["superseded_by"])
            if newer is None or newer["id"] <= row["id"] or _key(newer) != _key(row):
                yield f"change {row['id']} is superseded by {row['superseded_by']}, which is no newer one of its key"
        if row["outcome"] in {"SUPERSEDED", "NO_OP", "STALE"} and row["priority_class"] != "LWW":
            yield f"change {row['id']} is {row['priority_class']} and {row['outcome']}"
        if (row["outcome"] is None) != (row["processed_at"] is None):
            yield f"change {row['id']}: outcome {row['outcome']}, processed at {row['processed_at']}"
    yield from _no_ops(evidence)


def _no_ops(evidence: Evidence) -> Iterator[str]:
    """A no-op equals the change of its key that OldHost applied last before it."""
    applied: dict[Key, list[Row]] = defaultdict(list)
    for entry in evidence.applied:
        row = evidence.by_id.get(entry["body"]["event_id"])
        if row is not None:
            applied[_key(row)].append(row)
    for row in evidence.changes:
        if row["outcome"] == "NO_OP":
            older = [one for one in applied[_key(row)] if one["id"] < row["id"]]
            if not older or _json(older[-1]["payload"]) != _json(row["payload"]):
                yield f"change {row['id']} is a no-op, but OldHost had another state"
        if row["outcome"] == "STALE" and all(one["id"] < row["id"] for one in applied[_key(row)]):
            yield f"change {row['id']} is stale, but nothing newer was applied"


def _shadow(evidence: Evidence) -> Iterator[str]:
    """What people see: the last accepted payload of each event type; SYNCED only when the newest change is (I7)."""
    state: dict[tuple[str, str], Row] = defaultdict(dict)
    newest: dict[tuple[str, str], Row] = {}
    for row in evidence.changes:
        entity = (row["entity_type"], row["entity_id"])
        state[entity][row["event_type"]] = _json(row["payload"])
        newest[entity] = row
    seen = {(row["entity_type"], row["entity_id"]): row for row in evidence.shadow}
    for entity, expected in state.items():
        shown = seen.get(entity)
        if shown is None or _json(shown["state"]) != expected or shown["newest_change_id"] != newest[entity]["id"]:
            yield f"{entity}: the shadow is not what was accepted"
        elif shown["sync_status"] == "SYNCED" and newest[entity]["outcome"] in {None, "DEAD"}:
            yield f"{entity} is SYNCED while its newest change is {newest[entity]['outcome']}"
        elif shown["sync_status"] == "PENDING_SYNC":
            yield f"{entity} still waits though nothing is outstanding"


def _ledger(evidence: Evidence) -> Iterator[str]:
    ledger = evidence.ledger
    if ledger["halted"]:
        yield f"halted: {ledger['halted']}"
    expected = evidence.stats["expected_nonce"]
    if ledger["next_nonce"] != expected or ledger["last_applied_nonce"] != expected - 1:
        yield f"next {ledger['next_nonce']}, last {ledger['last_applied_nonce']}; OldHost expects {expected}"
    for row in evidence.requests:
        if row["status"] not in {"APPLIED", "FAILED", "UNSURE"}:
            yield f"nonce {row['nonce']} is still {row['status']}"


# ----------------------------------------------------------------------------------------------------------- figures


def _figures(evidence: Evidence) -> Row:
    states = Counter(receipt["state"] for receipt in evidence.receipts)
    outcomes = Counter(str(row["outcome"]) for row in evidence.changes)
    found = sum(str(row["answer"]).startswith("unconfirmed") for row in evidence.requests)
    return {
        "writes tried / accepted / abandoned": " / ".join(
            str(count) for count in (len(evidence.receipts), states["accepted"], states["abandoned"])
        ),
        "writes answered only after a repetition": sum(
            one["state"] == "accepted" and one["attempts"] > 1 for one in evidence.receipts
        ),
        "operations at OldHost (applied / rejected)": f"{len(evidence.applied)} / {len(evidence.rejected)}",
        "fates": ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items())),
        "ambiguous, found applied": found,
        "ambiguous, found not applied and sent again": sum(row["sends"] > 1 for row in evidence.requests),
        "applied late by OldHost": sum(bool(entry.get("late")) for entry in evidence.applied),
        "rejections whose answer was lost": len(evidence.lost_rejections),
        "answers that the protocol does not have: unsure": len(evidence.unsure),
        "changes that waited apart": len(evidence.set_apart),
        "signals tried / acknowledged": " / ".join(
            str(count) for count in (len(evidence.signals), sum(one["acknowledged"] for one in evidence.signals))
        ),
        "rows that others held": sum(one["rows"] for one in evidence.locks),
        "sessions (epochs)": evidence.ledger["epoch"],
        "connections at OldHost": evidence.stats["connections"],
    }


def _key(row: Row) -> Key:
    return row["entity_type"], row["entity_id"], row["event_type"]


def _payload(body: Row) -> Any:
    return body["payload"]


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, (str, bytes)) else value
