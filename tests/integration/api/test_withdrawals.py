"""Withdrawals by HTTP: look first, withdraw, undo; operators only, audited, and the writer is told."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from oldhost_sync.api import http_limits
from oldhost_sync.api.writer_link import writer_away
from oldhost_sync.http_client import SyncClient
from tests.integration.api.conftest import ScriptedWriter
from tests.integration.api.test_fates import fate, make

pytestmark = pytest.mark.mariadb
WHY = {"reason": "the rates were wrong"}


def preview(client: httpx.Client, **wanted: Any) -> dict[str, Any]:
    answer = client.post("/api/withdrawals/preview", json=wanted)
    assert answer.status_code == 200, answer.text
    seen: dict[str, Any] = answer.json()
    return seen


def test_what_the_preview_shows_is_withdrawn_and_the_writer_is_told(
    shop: httpx.Client, anna: httpx.Client, writer: ScriptedWriter
) -> None:
    older, newer = make(shop, "k1", "rate_changed"), make(shop, "k2", "rate_changed")
    other = make(shop, "k3", "checked_in")
    seen = preview(anna, idempotency_key="k2")
    assert (seen["changes"], seen["shown_before"], seen["operations"]) == (1, 1, 0)
    done = anna.post("/api/withdrawals", json={"idempotency_key": "k2", "up_to": seen["up_to"], **WHY}).json()
    assert (done["withdrawn"], done["left"], done["is_told"]) == (1, False, True)
    ((name, batch),) = writer.told
    assert (name, batch.withdrawn, [ref[0] for ref in batch.refs]) == ("enqueue", [newer], [older])
    assert [fate(shop, key)["state"] for key in ("k1", "k2", "k3")] == ["WAITING", "WITHDRAWN", "WAITING"]
    assert other


def test_its_application_is_told_by_whom_and_why(shop: httpx.Client, anna: httpx.Client) -> None:
    make(shop, "k1", "rate_changed")
    done = anna.post("/api/withdrawals", json={"source": "api:shop", "up_to": 10**9, **WHY}).json()
    last = fate(shop, "k1")["steps"][-1]
    assert last["step"] == "withdrawn"
    assert last["detail"] == f"withdrawal {done['withdrawal_id']} by anna: the rates were wrong"
    entry = anna.get("/api/audit", params={"action": "withdraw"}).json()["entries"][0]
    assert (entry["id"], entry["operator"], entry["reason"]) == (done["withdrawal_id"], "anna", WHY["reason"])
    assert entry["verified"] is True
    assert entry["detail"]["filter"] == {"source": "api:shop"}
    assert int(entry["detail"]["withdrawn"]) == 1


def test_its_fate_is_in_the_feed_and_in_the_list(shop: httpx.Client, anna: httpx.Client) -> None:
    change_id = make(shop, "k1", "rate_changed")
    anna.post("/api/withdrawals", json={"change_id": change_id, "up_to": change_id, **WHY})
    found = anna.get("/api/outbox", params={"outcome": "WITHDRAWN"}).json()
    assert [each["change_id"] for each in found["changes"]] == [change_id]
    feed = shop.get("/api/changes").json()["changes"]
    assert [(each["change_id"], each["outcome"]) for each in feed] == [(change_id, "WITHDRAWN")]


def test_only_operators_withdraw(shop: httpx.Client, vera: httpx.Client) -> None:
    for client in (shop, vera):
        for path in ("/api/withdrawals", "/api/withdrawals/preview", "/api/withdrawals/1/undo"):
            assert client.post(path, json={"event_type": "rate_changed"}).status_code == 403


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"up_to": 5, **WHY}, "body"),
        ({"event_type": "rate_changed", **WHY}, "body.up_to"),
        ({"event_type": "rate_changed", "up_to": 5}, "body.reason"),
        ({"event_typ": "rate_changed", "up_to": 5, **WHY}, "body.event_typ"),
        ({"priority_class": "urgent", "up_to": 5, **WHY}, "body.priority_class"),
    ],
)
def test_a_filter_that_says_nothing_or_something_else_is_refused(
    shop: httpx.Client, anna: httpx.Client, body: dict[str, Any], field: str
) -> None:
    make(shop, "k1", "rate_changed")
    answer = anna.post("/api/withdrawals", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
    assert fate(shop, "k1")["state"] == "WAITING"


def test_a_writer_that_is_away_hears_of_it_later(
    shop: httpx.Client, anna: httpx.Client, writer: ScriptedWriter
) -> None:
    make(shop, "k1", "rate_changed")
    writer.problem = writer_away("Temporal is away")
    done = anna.post("/api/withdrawals", json={"event_type": "rate_changed", "up_to": 10**9, **WHY}).json()
    assert (done["withdrawn"], done["is_told"]) == (1, False)


def test_a_request_that_has_no_time_left_says_that_there_is_more(
    shop: httpx.Client, anna: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(shop, "k1", "rate_changed")
    wanted = {"event_type": "rate_changed", "up_to": 10**9, **WHY}
    monkeypatch.setattr(http_limits, "WITHDRAWAL_SECONDS", 0.0)
    first = anna.post("/api/withdrawals", json=wanted).json()
    assert (first["withdrawn"], first["left"]) == (0, True)
    monkeypatch.setattr(http_limits, "WITHDRAWAL_SECONDS", 5.0)
    assert anna.post("/api/withdrawals", json=wanted).json()["withdrawn"] == 1


def test_an_undo_records_them_anew_and_says_so(shop: httpx.Client, anna: httpx.Client) -> None:
    make(shop, "k1", "rate_changed")
    done = anna.post("/api/withdrawals", json={"idempotency_key": "k1", "up_to": 10**9, **WHY}).json()
    path = f"/api/withdrawals/{done['withdrawal_id']}/undo"
    undone = anna.post(path, json={"reason": "it was right after all"}).json()
    assert (undone["recorded"], undone["left_out"], undone["left"]) == (1, 0, False)
    again = fate(shop, "k1")
    assert again["state"] == "WITHDRAWN"
    assert again["steps"][-1]["detail"].endswith(f"; recorded anew as change {again['superseded_by']}")
    assert [each["action"] for each in anna.get("/api/audit").json()["entries"]][:2] == ["undo-withdraw", "withdraw"]


def test_what_never_was_can_not_be_undone(anna: httpx.Client) -> None:
    answer = anna.post("/api/withdrawals/77/undo", json=WHY)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (409, "nothing-to-undo")


def test_the_client_withdraws_too(shop: httpx.Client, address: str) -> None:
    make(shop, "k1", "rate_changed")
    with SyncClient(address, "anna") as client:
        seen = client.preview_withdrawal(event_type="rate_changed")
        done = client.withdraw(reason="wrong", up_to=seen.up_to, event_type="rate_changed")
        assert (seen.changes, done.withdrawn, done.left) == (1, 1, False)
        assert client.fate("k1").is_final
