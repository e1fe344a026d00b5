"""The feed loses no fate: not by ids, not by times, not by commits that overlap (trap 13)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.store.decisions import Act, decide
from tests.integration.api.test_fates import make

_END = text(
    "UPDATE outbox_events SET outcome = :outcome, processed_at = UTC_TIMESTAMP(6) - INTERVAL :ago SECOND WHERE id = :id"
)


def end(connection: Connection, change_id: int, ago: float, outcome: str = "APPLIED") -> None:
    """Give a change its fate, `ago` seconds before now."""
    connection.execute(_END, {"id": change_id, "outcome": outcome, "ago": ago})


def poll(client: httpx.Client, since: str | None, **params: Any) -> dict[str, Any]:
    answer = client.get("/api/changes", params=({} if since is None else {"since": since}) | params)
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def ids(page: dict[str, Any]) -> list[int]:
    return [change["change_id"] for change in page["changes"]]


def test_fates_come_in_the_order_in_which_they_were_decided(shop: httpx.Client, engine: Engine) -> None:
    first, second, third = (make(shop, key) for key in "abc")
    with engine.begin() as connection:
        end(connection, third, 40)
        end(connection, first, 30)
        end(connection, second, 20)
    page = poll(shop, None, limit=2)
    assert (ids(page), page["more"], page["next_poll"]) == ([third, first], True, 0)
    page = poll(shop, page["next_cursor"], limit=2)
    assert (ids(page), page["more"]) == ([second], False)
    assert ids(poll(shop, page["next_cursor"])) == []


def test_a_fate_that_commits_late_is_not_skipped(shop: httpx.Client, engine: Engine) -> None:
    slow, quick = make(shop, "slow"), make(shop, "quick")
    with engine.connect() as connection:
        end(connection, slow, 40)
        with engine.begin() as other:
            end(other, quick, 30)
        page = poll(shop, None)
        assert ids(page) == []
        connection.commit()
    assert ids(poll(shop, page["next_cursor"])) == [slow, quick]


def test_a_fate_younger_than_the_lag_is_not_shown_yet(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    with engine.begin() as connection:
        end(connection, change_id, 0)
    assert ids(poll(shop, None)) == []


def test_fates_of_one_moment_are_split_over_pages_without_loss(shop: httpx.Client, engine: Engine) -> None:
    changes = [make(shop, f"k{number}") for number in range(5)]
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE outbox_events SET outcome = 'SUPERSEDED', processed_at = UTC_TIMESTAMP(6) - INTERVAL 60 SECOND"
            )
        )
    seen: list[int] = []
    cursor: str | None = None
    for _ in range(3):
        page = poll(shop, cursor, limit=2)
        seen += ids(page)
        cursor = page["next_cursor"]
    assert seen == changes


def test_a_retried_change_comes_again_with_its_next_fate(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k", "checked_in")
    with engine.begin() as connection:
        end(connection, change_id, 60, "DEAD")
    page = poll(shop, None)
    with engine.begin() as connection:
        end(connection, change_id, 30, "APPLIED")
    again = poll(shop, page["next_cursor"])
    assert [change["outcome"] for change in page["changes"] + again["changes"]] == ["DEAD", "APPLIED"]


def test_nothing_new_is_a_304_that_says_when_to_ask_again(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    first = shop.get("/api/changes", params={"since": "0-0"})
    again = shop.get("/api/changes", params={"since": "0-0"}, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert int(again.headers["retry-after"]) >= 1
    with engine.begin() as connection:
        end(connection, change_id, 60)
    news = shop.get("/api/changes", params={"since": "0-0"}, headers={"If-None-Match": first.headers["etag"]})
    assert (news.status_code, ids(news.json())) == (200, [change_id])


@pytest.mark.parametrize("known", ["{etag}", '"other", {etag}', "{strong}", "*"])
def test_the_tag_may_come_in_any_form_that_http_has(shop: httpx.Client, known: str) -> None:
    etag = shop.get("/api/changes").headers["etag"]
    assert etag.startswith('W/"')
    header = known.format(etag=etag, strong=etag.removeprefix("W/"))
    assert shop.get("/api/changes", headers={"If-None-Match": header}).status_code == 304
    assert shop.get("/api/changes", headers={"If-None-Match": '"other"'}).status_code == 200


def test_the_feed_can_begin_with_what_is_new(shop: httpx.Client, engine: Engine) -> None:
    old, new = make(shop, "old"), make(shop, "new")
    with engine.begin() as connection:
        end(connection, old, 60)
    cursor = poll(shop, "latest")["next_cursor"]
    just_after = int(cursor.split("-")[0]) + 1
    with engine.begin() as connection:
        end(connection, new, 0)
        connection.execute(
            text("UPDATE outbox_events SET processed_at = TIMESTAMPADD(MICROSECOND, :us, '1970-01-01') WHERE id = :id"),
            {"us": just_after, "id": new},
        )
    assert ids(poll(shop, cursor)) == [new]
    assert ids(poll(shop, None)) == [old, new]


def test_an_idle_feed_is_asked_less_often(shop: httpx.Client, engine: Engine) -> None:
    idle = poll(shop, None)["next_poll"]
    make(shop, "k")
    assert poll(shop, None)["next_poll"] < idle


def test_another_host_s_fates_are_not_shown(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    with engine.begin() as connection:
        end(connection, change_id, 60)
        connection.execute(text("UPDATE outbox_events SET host = 'other'"))
    assert ids(poll(shop, None)) == []


def test_a_dead_letter_that_is_given_up_comes_again_with_that_fate(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    with engine.begin() as connection:
        end(connection, change_id, 60, "DEAD")
    page = poll(shop, None)
    assert [change["outcome"] for change in page["changes"]] == ["DEAD"]
    with engine.begin() as connection:
        assert not decide(connection, Act("oldhost", "discard", "anna", "the guest left", change_id)).refused
        connection.execute(text("UPDATE outbox_events SET processed_at = processed_at - INTERVAL 30 SECOND"))
    page = poll(shop, page["next_cursor"])
    assert [(change["change_id"], change["outcome"]) for change in page["changes"]] == [(change_id, "DISCARDED")]
