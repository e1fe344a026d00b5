"""Odd values in every parameter and every field of every page: never a 5xx, and no value is taken for another."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from sqlalchemy.engine import Engine

from oldhost_sync.console.door import STREAM
from oldhost_sync.console.paths import LINK, PREFIX
from tests.integration.api.test_odd_queries import ODD, RAW
from tests.integration.console.conftest import FullWriter
from tests.integration.store.writing import recorded

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]

VALUES = [*(quote(each, safe="") for each in ODD), *RAW]
# What a form's other fields hold while one of them is odd.
FILLED = {
    "reason": "tried",
    "mode": "adopt",
    "epoch": "3",
    "host": "oldhost",
    "entity_type": "unit",
    "entity_id": "A-1",
    "event_type": "rate_changed",
    "priority_class": "TXN",
    "payload": "{}",
    "key": "k",
    "group": "no such guest",
    "up_to": "7",
    "change_id": "1",
}
FORMS = {
    "/pause": ("reason",),
    "/resume": ("reason",),
    "/flush": ("reason", "entity_type", "entity_id"),
    "/entity/flush": ("reason", "entity_type", "entity_id"),
    "/halt/resolve": ("reason", "mode", "epoch", "host"),
    "/rules/set": ("reason", "event_type", "priority_class"),
    "/scheduled/cancel": ("reason", "key"),
    "/changes/1/payload": (),
    "/changes/1/retry": ("reason",),
    "/changes/1/discard": ("reason",),
    "/changes/1/confirm": ("reason",),
    "/changes/1/replace": ("reason", "payload"),
    "/dead-letters/retry": ("reason", "change_id", "group"),
    "/dead-letters/discard": ("reason", "change_id", "group"),
    "/dead-letters/group/retry": ("reason", "group", "up_to"),
    "/dead-letters/group/discard": ("reason", "group", "up_to"),
    "/alerts/1/acknowledge": ("reason",),
    "/alerts/1/close": ("reason",),
    "/sign-in": ("token", "next"),
    "/theme": ("theme", "next"),
}


def pages(app: FastAPI) -> Iterator[APIRoute]:
    for route in app.routes:
        if isinstance(route, APIRoute) and route.path.startswith(PREFIX) and route.path != STREAM:
            yield route


def query_of(dependant: Dependant) -> list[str]:
    return [each.alias for each in dependant.query_params] + [
        name for inner in dependant.dependencies for name in query_of(inner)
    ]


def raw(client: httpx.Client, path: str) -> httpx.Response:
    """`path` is part of a URL already; a redirect is not followed."""
    return client.get(httpx.URL(str(client.base_url).rstrip("/")).copy_with(raw_path=path.encode()))


@pytest.mark.usefixtures("one_plan")
@pytest.mark.timeout(900)
def test_no_value_of_a_page_s_parameter_is_answered_with_an_error_of_the_server(
    app: FastAPI, anna: httpx.Client
) -> None:
    tried, failed = 0, []
    for route in pages(app):
        if "GET" not in (route.methods or ()):
            continue
        path = route.path.replace("{entity_id:path}", "{entity_id}")
        names = [each.alias for each in route.dependant.path_params]
        given = dict.fromkeys(names, "1")
        addresses = [path.format(**given | {name: value}) for name in names for value in VALUES] + [
            f"{path.format(**given)}?{name}={value}" for name in query_of(route.dependant) for value in VALUES
        ]
        for address in addresses:
            tried += 1
            answer = raw(anna, address)
            if answer.status_code >= 500:
                failed.append((address[:100], answer.status_code, answer.text[:200]))
    assert tried > 1_000
    assert not failed
    assert raw(anna, f"{LINK}?secret=1").status_code == 403


def test_every_form_of_the_console_is_tried(app: FastAPI) -> None:
    posted = {route.path for route in pages(app) if "POST" in (route.methods or ())}
    tried = {PREFIX + path.replace("/1/", "/{change_id}/") for path in FORMS}
    tried = {path.replace("alerts/{change_id}", "alerts/{alert_id}") for path in tried}
    assert posted - tried == {f"{PREFIX}/sign-out", f"{PREFIX}/codec/decode"}


@pytest.mark.timeout(900)
def test_no_value_of_a_form_s_field_is_answered_with_an_error_of_the_server(engine: Engine, anna: httpx.Client) -> None:
    recorded(engine)
    failed = []
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for path, fields in FORMS.items():
        for field in fields:
            rest = "&".join(f"{name}={quote(FILLED.get(name, ''))}" for name in fields if name != field)
            for value in VALUES:
                answer = anna.post(PREFIX + path, content=f"{rest}&{field}={value}", headers=headers)
                if answer.status_code >= 500:
                    failed.append((path, field, value[:60], answer.status_code, answer.text[:300]))
    assert not failed


NUMBERS = ["+7", "7.0", "7_0", "0x7", "٧", "７", "1e1", "true", "9223372036854775808"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_in_a_form_is_decimal_digits(anna: httpx.Client, writer: FullWriter, number: str) -> None:
    for path, name in (
        ("/halt/resolve", "epoch"),
        ("/dead-letters/group/retry", "up_to"),
        ("/dead-letters/retry", "change_id"),
    ):
        form = {each: FILLED[each] for each in FORMS[path]} | {name: number}
        answer = anna.post(PREFIX + path, data=form)
        assert answer.status_code == 422, (path, answer.headers)
        assert "in decimal digits" in answer.text
    assert not writer.acts


def test_the_digits_of_a_form_are_taken(anna: httpx.Client, writer: FullWriter) -> None:
    form = {each: FILLED[each] for each in FORMS["/halt/resolve"]} | {"epoch": "7"}
    assert anna.post(f"{PREFIX}/halt/resolve", data=form).status_code == 303
    assert [request.epoch for _, request in writer.acts] == [7]


@pytest.mark.parametrize("hours", ["+7", "1_0", "٧", "nan", "inf", "1e999"])
def test_a_filter_s_number_is_decimal_digits(anna: httpx.Client, hours: str) -> None:
    for name in ("newer_hours", "older_hours", "waited_s"):
        assert anna.get(f"{PREFIX}/changes", params={name: hours}).status_code == 422
        assert anna.get(f"{PREFIX}/changes", params={name: "2.5"}).status_code == 200
