"""Examples of what people view, for the OpenAPI document; they continue the story of `examples`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from oldhost_sync.api import usage_schemas, view_schemas
from oldhost_sync.api.routes.hosts import ServedHosts
from oldhost_sync.api.schemas import KEY

_REJECTED = {
    "change_id": 4712,
    "idempotency_key": "booking-2093-checked-in",
    "event_type": "checked_in",
    "priority_class": "TXN",
    "accepted_at": "2026-05-01T12:00:30Z",
    "outcome": "DEAD",
    "processed_at": "2026-05-01T12:01:03Z",
    "nonce": 502,
    "error": "no such guest",
}
_LISTED = {
    **_REJECTED,
    "entity_type": "unit",
    "entity_id": "12B",
    "source": "api:shop",
    "state": "DEAD",
    "superseded_by": None,
    "unconfirmed": False,
    "unsure": False,
}
_RULE = {"event_type": "rate_changed", "priority_class": "LWW", "default": "LWW"}

_POINT = {
    "at": "2026-05-01T12:00:30Z",
    "emergency": 1,
    "txn": 14,
    "lww": 230,
    "accepted": 61,
    "applied": 25,
    "emergency_ms": 840,
    "stopped": None,
}
_SITUATION: dict[str, Any] = {
    "word": "PAUSED",
    "tone": "warning",
    "why": "anna paused it: OldHost's operators asked for an hour without load.",
    "next_step": "Resume when the reason no longer applies. Changes are still accepted.",
    "since": "2026-05-01T11:58:00Z",
    "until": None,
    "also": [],
}

ANSWERS: dict[type[BaseModel], dict[str, Any]] = {
    view_schemas.Series: {"span": "1h", "step_seconds": 10, "points": [_POINT]},
    view_schemas.WriterSituation: _SITUATION,
    view_schemas.ChangePage: {"changes": [_LISTED], "next_cursor": "4712"},
    view_schemas.Payload: {"change_id": 4712, "payload": {"guest": "g-77"}},
    view_schemas.Entity: {
        "entity_type": "unit",
        "entity_id": "12B",
        "name": "Seaview 12",
        "property_id": "seaview",
        "status": "Clean",
        "sync_status": "SYNC_FAILED",
        "newest_change_id": 4713,
        "updated_at": "2026-05-01T12:00:45Z",
        "keys": [
            {
                "event_type": "unit_status_changed",
                "is_shown": True,
                "change_id": 4711,
                "nonce": 501,
                "applied_at": "2026-05-01T12:01:02Z",
                "equal": True,
                "shown": None,
                "at_oldhost": None,
            }
        ],
        "outstanding": 1,
        "held": 1,
        "dead_letters": [4712],
        "scheduled": [
            {
                "idempotency_key": KEY,
                "event_type": "door_code_changed",
                "not_before": "2026-12-24T14:00:00Z",
                "created_at": "2026-05-01T12:00:50Z",
            }
        ],
        "changes": [_REJECTED],
        "writer": {
            "entity_type": "unit",
            "entity_id": "12B",
            "changes": [],
            "dead_letters": [4712],
        },
        "note": None,
    },
    view_schemas.SearchHits: {
        "hits": [
            {
                "kind": "entity",
                "found_by": "name",
                "title": "unit/12B Seaview 12",
                "change_id": None,
                "idempotency_key": None,
                "entity_type": "unit",
                "entity_id": "12B",
                "property_id": None,
            }
        ]
    },
    view_schemas.ScheduledPage: {
        "scheduled": [
            {
                "idempotency_key": KEY,
                "entity_type": "unit",
                "entity_id": "12B",
                "event_type": "door_code_changed",
                "source": "api:shop",
                "not_before": "2026-12-24T14:00:00Z",
                "created_at": "2026-05-01T12:00:50Z",
            }
        ],
        "next_cursor": None,
    },
    view_schemas.LetterGroups: {
        "groups": [
            {
                "reason": "no such guest #",
                "example": "no such guest 7",
                "letters": 1,
                "entities": 1,
                "held": 1,
                "oldest_at": "2026-05-01T12:01:03Z",
                "newest_id": 4712,
                "event_types": ["checked_in"],
                "sources": ["api:front-desk"],
                "change_ids": [4712],
            }
        ],
        "other_reasons": 0,
        "other_letters": 0,
        "more": False,
    },
    view_schemas.LettersDecided: {
        "action": "retry",
        "operator": "anna",
        "decided": 1,
        "left": 0,
        "stopped": None,
        "decisions": [
            {"change_id": 4712, "done": True, "message": "change 4712 waits again"},
            {"change_id": 4719, "done": False, "message": "it is APPLIED, not a dead letter"},
        ],
    },
    view_schemas.Replaced: {
        "change_id": 4712,
        "replaced_by": 4720,
        "idempotency_key": "corrected-4712-5e884898da280471",
        "discarded": True,
        "message": "change 4720 is recorded; change 4712 is given up",
    },
    view_schemas.HaltState: {
        "halt": {
            "reason": "OldHost expects nonce 501, but it answered 502 before: it went back, as after a restore from a "
            "backup. Decide by `resolve`.",
            "difference": "back",
            "conclusion": "OldHost's nonce is 2 behind ours: it lost 2 operations that it had answered, as after a "
            "restore from a backup.",
            "expected_nonce": 501,
            "next_nonce": 503,
            "last_applied_nonce": 502,
            "epoch": 3,
            "decided": None,
            "decided_by": None,
            "decided_at": None,
            "updated_at": "2026-05-01T12:01:05Z",
            "at_stake": 2,
            "same": False,
            "adopt": {
                "says": "OldHost's count is taken: what it lost (2 operations) is not sent again.",
                "given_up": 2,
                "counted_applied": 0,
                "letters": 0,
                "sent_again": 0,
                "waiting_again": 0,
                "next_nonce": 501,
            },
            "resend": {
                "says": "OldHost gets 2 operations, from nonce 501 on, again as they were.",
                "given_up": 0,
                "counted_applied": 0,
                "letters": 0,
                "sent_again": 2,
                "waiting_again": 0,
                "next_nonce": 503,
            },
            "operations": [
                {
                    "nonce": 501,
                    "change_id": 4711,
                    "status": "APPLIED",
                    "sends": 1,
                    "sent_at": "2026-05-01T12:01:01Z",
                    "answer": "applied",
                    "entity_type": "unit",
                    "entity_id": "12B",
                    "event_type": "unit_status_changed",
                    "priority_class": "LWW",
                }
            ],
        }
    },
    view_schemas.Sessions: {
        "epoch": 3,
        "owner": "worker-1",
        "banned_at": None,
        "banned_until": None,
        "halted": None,
        "updated_at": "2026-05-01T12:01:03Z",
        "relay": {
            "name": "relay-1",
            "seen_at": "2026-05-01T12:01:20Z",
            "at_work": True,
            "has_left": False,
            "knows_release": None,
        },
        "workers": [
            {
                "name": "worker-1",
                "seen_at": "2026-05-01T12:01:00Z",
                "at_work": True,
                "has_left": False,
                "knows_release": 1,
            }
        ],
        "sessions": [
            {
                "epoch": 3,
                "owner": "worker-1",
                "opened_at": "2026-05-01T11:40:00Z",
                "opened_at_nonce": 480,
                "ended_at": None,
                "ended_because": None,
                "lost_replies": 0,
                "successor_at": None,
                "operations": None,
            }
        ],
        "sessions_of_a_day": 3,
        "lost_replies_of_a_day": 2,
    },
    view_schemas.Plan: {
        "scenario": {"units": 2500, "changes": 10000, "latency_ms": 400.0, "ban_at_s": None},
        "notes": [],
        "figures": {"operations": 4508, "superseded": 5492, "drained": True, "drained_s": 3243.5},
        "promises": {"drains": True, "consistency within 4 h": True},
        "samples": [{"at_ms": 0, "ready": 0, "debounced": 3, "sent": 0, "banned": False}],
    },
    ServedHosts: {
        "hosts": [
            {
                "host": "oldhost",
                "state": "SENDING",
                "why": "",
                "oldest_waiting_at": "2026-05-01T12:00:00Z",
                "open_alerts": 0,
            }
        ]
    },
    view_schemas.Rule: _RULE,
    usage_schemas.UsageOfTokens: {
        "minutes": 10,
        "quotas": {"requests": 60_000, "changes": 200_000, "emergencies": 150},
        "tokens": [{"token": "shop", "requests": 640, "changes": 612, "emergencies": 150, "refused": 450}],
    },
    view_schemas.Rules: {"rules": [_RULE]},
}
