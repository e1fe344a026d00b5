"""An example of every answer for the OpenAPI document, all from one small story.

Unit 12B is cleaned (change 4711, applied); one of its booking changes is rejected (4712), and another is held behind it
(4713).
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from oldhost_sync.api import schemas, view_examples
from oldhost_sync.api.schemas import KEY

_NAME_REFUSED = "entity_type must be 1 to 64 of the characters A-Z a-z 0-9 _ . - and not begin with -"
_REJECTED_KEY = "booking-2093-checked-in"
_REJECTION = "no such guest"
_ACCEPTED = {"sync_status": "PENDING_SYNC", "change_id": 4711, "idempotency_key": KEY}
_UNIT = {
    "id": "12B",
    "name": "Seaview 12",
    "property_id": "seaview",
    "status": "Clean",
    "sync_status": "SYNCED",
    "synced_at": "2026-05-01T12:01:02Z",
    "newest_change_id": 4711,
    "synced_change_id": 4711,
    "updated_at": "2026-05-01T12:00:00Z",
}
_CLEANED = {
    "change_id": 4711,
    "idempotency_key": KEY,
    "entity_type": "unit",
    "entity_id": "12B",
    "event_type": "unit_status_changed",
    "priority_class": "LWW",
    "accepted_at": "2026-05-01T12:00:00Z",
    "processed_at": "2026-05-01T12:01:02Z",
    "nonce": 501,
    "error": None,
}
_REJECTED = {
    **_CLEANED,
    "change_id": 4712,
    "idempotency_key": _REJECTED_KEY,
    "event_type": "checked_in",
    "priority_class": "TXN",
    "accepted_at": "2026-05-01T12:00:30Z",
    "processed_at": "2026-05-01T12:01:03Z",
    "nonce": 502,
    "error": _REJECTION,
}
_HELD = {
    "change_id": 4713,
    "priority_class": "TXN",
    "entity_type": "unit",
    "entity_id": "12B",
    "event_type": "checked_out",
}
_NEXT = {
    "change_id": 4714,
    "priority_class": "EMERGENCY",
    "entity_type": "unit",
    "entity_id": "7A",
    "event_type": "guest_locked_out",
}
_WORKFLOW = {
    "host": "oldhost",
    "state": "SENDING",
    "release": 1,
    "paused": None,
    "breaker": {"state": "CLOSED", "reason": "", "remaining_ms": 0},
    "session": {
        "phase": "open",
        "epoch": 3,
        "task_queue": "oldhost-sync-session-worker-1",
        "opened_at_nonce": 481,
        "waiting_for": "",
    },
    "lanes": {
        "EMERGENCY": {"depth": 1, "oldest_age_ms": 200},
        "TXN": {"depth": 0, "oldest_age_ms": 0},
        "LWW": {"depth": 0, "oldest_age_ms": 0},
    },
    "debounced": 0,
    "waiting": 2,
    "held": 1,
    "apart": 0,
    "dead_letters": 1,
    "in_flight": 0,
    "in_doubt": 0,
    "rates": {"arrivals_per_s": 0.4, "applied_per_s": 0.4, "service_ms": 410.0},
    "forecast": {
        "drain_ms": 957,
        "oldest_age_ms": 30000,
        "emergency_ms": 410,
        "breaks_consistency": False,
        "breaks_emergency": False,
        "emergencies": 0,
        "late_emergencies": 0,
    },
    "counters": {
        "received": 4,
        "applied": 1,
        "superseded": 0,
        "no_op": 0,
        "stale": 0,
        "dead": 1,
        "sessions": 1,
        "bans": 0,
    },
}

_ALERT = {
    "id": 17,
    "kind": "dead-letters",
    "cause": "dead-letters:no such door #",
    "severity": "warning",
    "message": "OldHost rejected 2 changes: no such door #, for example: no such door 17. Later TXN changes of their "
    "entities are held until each is decided on.",
    "count": 2,
    "change_id": 4712,
    "created_at": "2026-05-01T12:01:03Z",
    "updated_at": "2026-05-01T12:03:40Z",
    "delivered_at": "2026-05-01T12:01:04Z",
    "acknowledged_at": "2026-05-01T12:02:10Z",
    "acknowledged_by": "anna",
    "acknowledge_reason": "I am looking into it",
    "closed_at": None,
    "closed_by": None,
    "close_reason": None,
    "may_close": False,
    "runbook": "docs/operations.md#alert-dead-letters",
}

_ANSWERS: dict[type[BaseModel], dict[str, Any]] = {
    schemas.Accepted: _ACCEPTED,
    schemas.UnitAccepted: {**_ACCEPTED, "changes": [_ACCEPTED]},
    schemas.BatchAccepted: {
        "recorded": 1,
        "refused": 1,
        "results": [
            {"status": 202, **_ACCEPTED, "replayed": False, "problem": None},
            {
                "status": 422,
                "sync_status": None,
                "change_id": None,
                "idempotency_key": "booking-2093-checked-in",
                "replayed": False,
                "problem": {
                    "type": "urn:oldhost-sync:problem:invalid",
                    "title": "The request has a mistake",
                    "status": 422,
                    "detail": f"entity_type: {_NAME_REFUSED}",
                    "action": "Correct the field and send it again; GET /openapi.json describes it.",
                    "errors": [
                        {
                            "field": "entity_type",
                            "message": _NAME_REFUSED,
                        }
                    ],
                },
            },
        ],
    },
    schemas.Cancelled: {"idempotency_key": KEY, "cancelled_at": "2026-05-01T12:00:00Z"},
    schemas.Unit: _UNIT,
    schemas.UnitPage: {"units": [_UNIT], "next_cursor": None},
    schemas.Fate: {
        **_CLEANED,
        "state": "APPLIED",
        "outcome": "APPLIED",
        "occurred_at": None,
        "not_before": None,
        "superseded_by": None,
        "supersedes": [4708],
        "answer": "applied",
        "unconfirmed": False,
        "unsure": False,
        "waits_apart": False,
        "waiting_for": [],
        "steps": [
            {"step": "accepted", "at": "2026-05-01T12:00:00Z", "detail": "as LWW, by api:shop", "nonce": None},
            {"step": "relayed", "at": "2026-05-01T12:00:01Z", "detail": "the writer holds it", "nonce": None},
            {"step": "reserved", "at": "2026-05-01T12:01:01Z", "detail": "nonce 501, epoch 3", "nonce": 501},
            {"step": "sent", "at": "2026-05-01T12:01:01Z", "detail": "once", "nonce": 501},
            {"step": "answered", "at": "2026-05-01T12:01:02Z", "detail": "applied", "nonce": 501},
            {"step": "applied", "at": "2026-05-01T12:01:02Z", "detail": "OldHost has it", "nonce": 501},
        ],
    },
    schemas.Feed: {
        "changes": [
            {**_CLEANED, "outcome": "APPLIED", "superseded_by": None, "unconfirmed": False, "unsure": False},
            {**_REJECTED, "outcome": "DEAD", "superseded_by": None, "unconfirmed": False, "unsure": False},
        ],
        "next_cursor": "1777636863000000-4712",
        "more": False,
        "next_poll": 1,
    },
    schemas.WriterStatus: {
        "host": "oldhost",
        "reachable": True,
        "note": None,
        "workflow": _WORKFLOW,
        "books": {
            "accepted": 4,
            "waiting": 2,
            "in_flight": 0,
            "applied": 1,
            "superseded": 0,
            "no_op": 0,
            "stale": 0,
            "dead": 1,
            "discarded": 0,
            "refused": 0,
        },
        "ledger": {
            "next_nonce": 503,
            "last_applied_nonce": 502,
            "epoch": 3,
            "owner": "worker-1",
            "banned_until": None,
            "ban_is_over": True,
            "halted": None,
            "halted_expected_nonce": None,
            "updated_at": "2026-05-01T12:01:03Z",
        },
        "oldest_waiting_at": "2026-05-01T12:00:45Z",
        "open_alerts": 1,
        "emergency_breaches": {"incidents": 1, "breaches": 2, "worst_ms": 41_200},
        "usual_service_ms": 402.5,
    },
    schemas.EntityInWriter: {
        "entity_type": "unit",
        "entity_id": "12B",
        "workflow": {
            "entity_type": "unit",
            "entity_id": "12B",
            "changes": [
                {
                    **_HELD,
                    "place": "held behind a dead letter",
                    "waits_for": "an operator to decide on the dead letter",
                    "due_in_ms": 0,
                }
            ],
            "dead_letters": [4712],
        },
    },
    schemas.Upcoming: {"upcoming": [_NEXT]},
    schemas.DeadLetterPage: {"dead_letters": [{**_REJECTED, "unsure": False, "held": 1}], "next_cursor": None},
    schemas.AlertPage: {"alerts": [_ALERT], "next_cursor": None},
    schemas.Alert: _ALERT,
    schemas.AuditPage: {
        "entries": [
            {
                "id": 5,
                "action": "pause",
                "operator": "anna",
                "reason": "OldHost's operators asked for an hour without load",
                "change_id": None,
                "detail": {"message": "noted", "mode": None, "decision": "0f8b7c52"},
                "created_at": "2026-05-01T12:05:00Z",
                "channel": "api",
                "verified": True,
            }
        ],
        "next_cursor": None,
    },
    schemas.Health: {"status": "ok"},
}

# The writer's answer to each action; the action is the last part of its path.
_DONE = {
    "pause": "paused",
    "resume": "resumed",
    "flush": "flush: 1 waiting key",
    "resolve": "2 operations from nonce 503 on are sent again as they were",
    "retry": "change 4712 waits again",
    "discard": "change 4712 is given up",
    "confirm": "change 4712 counts as applied",
}

METRICS = (
    "# HELP oldhost_sync_api_requests_total Requests answered.\n"
    "# TYPE oldhost_sync_api_requests_total counter\n"
    'oldhost_sync_api_requests_total{method="POST",route="/api/changes",status="202"} 4.0\n'
)


def add_to(document: dict[str, Any]) -> None:
    """Add an example to the success answer of every operation."""
    answers = _ANSWERS | view_examples.ANSWERS
    by_name = {model.__name__: example for model, example in answers.items()}
    for path, operations in document["paths"].items():
        action = path.rpartition("/")[2]
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                content = answer.get("content", {}).get("application/json")
                if content is None or not status.startswith("2"):
                    continue
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                if name == schemas.ActionResult.__name__:
                    content["example"] = {"action": action, "operator": "anna", "message": _DONE[action]}
                elif name in by_name:
                    content["example"] = by_name[name]
