"""One process serves many hosts: each has its own paths, books and tokens, and none sees another's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import Caller
from oldhost_sync.api.app import create_app
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.roles.api import build, console_of, serve_others
from oldhost_sync.settings import Role, Settings, load_settings
from oldhost_sync.store.engine import create_engine
from tests.integration.api.conftest import a_client, a_token, served
from tests.integration.store.writing import register

NORTH = "north"
CHANGE = {"entity_type": "unit", "entity_id": "A-1", "event_type": "checked_in", "payload": {"guest": 1}}


def settings_of(database_url: str) -> Settings:
    return load_settings(
        database_url=database_url,
        oldhost_url="http://127.0.0.1:3",
        oldhost_urls={NORTH: "http://127.0.0.1:1", "south": "http://127.0.0.1:2"},
        api_tokens=(
            a_token("shop", "app"),
            a_token("anna", "ops"),
            replace(a_token("nora", "ops"), hosts=frozenset({NORTH})),
        ),
    )


@pytest.fixture
def app(database_url: str) -> FastAPI:
    settings = settings_of(database_url)
    engine = create_engine(database_url)
    register(engine, *settings.oldhost_urls)
    engine.dispose()
    dependencies = build(settings)
    app = create_app(dependencies, console_of(settings))
    serve_others(app, dependencies, settings)
    return app


def test_a_change_is_recorded_for_the_host_in_the_path_and_no_other(shop: httpx.Client) -> None:
    key = {"Idempotency-Key": "k-1"}
    assert shop.post(f"/api/hosts/{NORTH}/changes", json=CHANGE, headers=key).status_code == 202
    assert shop.get(f"/api/hosts/{NORTH}/changes/k-1").status_code == 200
    assert shop.get("/api/changes/k-1").status_code == 404
    assert shop.get("/api/hosts/south/changes/k-1").status_code == 404


def test_the_host_of_the_setting_has_its_own_path_too(shop: httpx.Client) -> None:
    assert shop.post("/api/changes", json=CHANGE, headers={"Idempotency-Key": "k-2"}).status_code == 202
    assert shop.get("/api/hosts/oldhost/changes/k-2").status_code == 200


def test_a_host_that_is_not_served_is_not_found(shop: httpx.Client) -> None:
    assert shop.get("/api/hosts/nonsense/changes").status_code == 404


def test_the_hosts_are_listed_with_their_states(anna: httpx.Client) -> None:
    """There is no Temporal here, so none has a writer."""
    listed = anna.get("/api/hosts").json()["hosts"]
    assert [(each["host"], each["state"]) for each in listed] == [
        ("oldhost", "NO WRITER"),
        (NORTH, "NO WRITER"),
        ("south", "NO WRITER"),
    ]


def test_a_token_for_one_host_is_unknown_at_the_others(address: str) -> None:
    with a_client(address, "nora") as nora:
        assert nora.get("/api/changes").status_code == 401
        assert nora.get("/api/hosts/south/changes").status_code == 401
        assert nora.get(f"/api/hosts/{NORTH}/changes").status_code == 200
        assert [each["host"] for each in nora.get(f"/api/hosts/{NORTH}/hosts").json()["hosts"]] == [NORTH]


def test_without_a_token_no_host_is_told(address: str) -> None:
    with httpx.Client(base_url=address) as nobody:
        assert nobody.get("/api/hosts").status_code == 401
        assert nobody.get(f"/api/hosts/{NORTH}/changes").status_code == 401


@pytest.fixture
def browser(address: str) -> Iterator[httpx.Client]:
    """Signed in, once for all hosts."""
    with httpx.Client(base_url=address, headers={"Origin": address}, follow_redirects=True) as client:
        assert client.post(f"{PREFIX}/sign-in", data={"token": "anna"}).status_code == 200
        yield client


def test_the_console_lists_the_hosts_and_leads_to_each(browser: httpx.Client) -> None:
    page = browser.get(f"{PREFIX}/hosts").text
    assert f'href="{PREFIX}/hosts/{NORTH}"' in page
    assert f'href="{PREFIX}/hosts/oldhost"' in page


def test_each_page_of_a_host_s_console_stays_with_that_host(browser: httpx.Client) -> None:
    base = f"{PREFIX}/hosts/{NORTH}"
    for path in ("", "/changes", "/alerts", "/rules"):
        page = browser.get(base + path)
        assert page.status_code == 200
        assert f"· {NORTH} · OldHost Sync</title>" in page.text
        links = [part.split('"')[0] for part in page.text.split('="')[1:] if part.startswith(PREFIX)]
        assert links
        assert [link for link in links if not link.startswith(base)] == []


def test_an_act_in_a_host_s_console_is_done_for_that_host(browser: httpx.Client) -> None:
    form = {"event_type": "rate_changed", "priority_class": "TXN", "reason": "tried"}
    answer = browser.post(f"{PREFIX}/hosts/{NORTH}/rules/set", data=form)
    assert answer.url.path == f"{PREFIX}/hosts/{NORTH}/rules"
    rules = {host: browser.get(f"{PREFIX}/hosts/{host}/audit").text for host in (NORTH, "oldhost")}
    assert "tried" in rules[NORTH]
    assert "tried" not in rules["oldhost"]


def test_a_single_host_is_found_under_its_name_too(database_url: str) -> None:
    settings = load_settings(database_url=database_url, api_tokens=(a_token("shop", "app"),))
    dependencies = build(settings)
    app = create_app(dependencies, console_of(settings))
    serve_others(app, dependencies, settings)
    with served(app) as address, a_client(address, "shop") as shop:
        assert shop.get("/api/hosts/oldhost/changes").status_code == 200


def test_the_last_use_of_a_token_at_any_host_is_kept_when_the_process_ends(app: FastAPI, engine: Engine) -> None:
    with served(app) as address, a_client(address, "shop") as shop:
        assert shop.get(f"/api/hosts/{NORTH}/units").status_code == 200
        assert shop.get("/api/hosts/south/units").status_code == 200
    with engine.connect() as connection:
        used = connection.execute(text("SELECT host FROM token_uses WHERE name = 'shop' ORDER BY host")).scalars().all()
    assert used == [NORTH, "south"]


def test_what_a_process_does_beside_requests_uses_the_same_connections_for_all_hosts(database_url: str) -> None:
    dependencies = build(settings_of(database_url))
    hosts = [replace(dependencies, host=f"host-{number}") for number in range(20)]

    async def share_usage() -> int:
        for each in hosts:
            each.quotas.request(Caller("shop", Role.APP))
        await asyncio.gather(*(each.quotas.exchange() for each in hosts))
        ours = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()"
        return await dependencies.database.separate.run(lambda connection: connection.scalar(text(ours)))

    assert asyncio.run(share_usage()) <= http_limits.DATABASE_THREADS_SEPARATE
    dependencies.database.close()
