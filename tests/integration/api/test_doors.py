"""One table of changes at every door of the API, in Python, and in a file: each is taken everywhere, or refused
everywhere in the same words. The doors of the workflow are in `tests/integration/system/test_doors.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from oldhost_sync import record_change, record_changes
from oldhost_sync.cli.main import run
from oldhost_sync.store.errors import InvalidChange
from tests.integration.change_forms import (
    MOMENTS,
    NO_JSON,
    NO_MOMENTS,
    OUTSIDE_MOMENTS,
    REFUSED,
    TAKEN,
    TIME,
    YEARS,
    differing,
)

HOST = "oldhost"
pytestmark = pytest.mark.mariadb


def words_of(answer: httpx.Response) -> str:
    """What the first error says."""
    content = answer.json()
    said = content["errors"][0]["message"] if content.get("errors") else content["detail"]
    return str(said).removeprefix("The body: ").removesuffix(".")


def post(shop: httpx.Client, path: str, body: bytes) -> httpx.Response:
    return shop.post(path, content=body, headers={"Content-Type": "application/json"})


def test_a_body_of_one_change(shop: httpx.Client) -> None:
    said: dict[str, str | None] = {}
    for form in [*TAKEN, *REFUSED, *NO_JSON]:
        answer = post(shop, "/api/changes", form.text)
        assert answer.status_code in (202, 400, 422), form.name
        said[form.name] = None if answer.status_code == 202 else words_of(answer)
    assert not differing([*TAKEN, *REFUSED, *NO_JSON], said)


def test_a_batch(shop: httpx.Client) -> None:
    """An item is refused alone; a text that can't be read as JSON is refused with its batch."""
    said: dict[str, str | None] = {}
    for form in [*TAKEN, *REFUSED]:
        answer = post(shop, "/api/changes/batch", b'{"changes": [%s]}' % form.text)
        assert answer.status_code in (202, 207, 400, 422), form.name
        if answer.status_code in (400, 422):
            said[form.name] = words_of(answer)
            continue
        problem = answer.json()["results"][0]["problem"]
        said[form.name] = problem and problem["errors"][0]["message"]
    assert not differing([*TAKEN, *REFUSED], said)


def test_record_change(engine: Engine) -> None:
    forms = [form for form in [*TAKEN, *REFUSED] if form.is_object and "the change" not in (form.says or "")]
    said: dict[str, str | None] = {}
    for form in forms:
        with engine.begin() as connection:
            try:
                record_change(connection, host=HOST, **form.value)
                said[form.name] = None
            except InvalidChange as error:
                said[form.name] = str(error)
    assert len(forms) > 100
    assert not differing(forms, said)


def test_record_changes(engine: Engine) -> None:
    forms = [form for form in [*TAKEN, *REFUSED] if form.is_object]
    said: dict[str, str | None] = {}
    for form in forms:
        with engine.begin() as connection:
            try:
                record_changes(connection, [form.value], host=HOST)
                said[form.name] = None
            except InvalidChange as error:
                said[form.name] = str(error).partition("item 0: ")[2]
    assert not differing(forms, said)


def test_a_file_of_the_command_line(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forms = [form for form in [*TAKEN, *REFUSED, *NO_JSON] if form.name != "UTF-16"]
    file = tmp_path / "changes.jsonl"
    file.write_bytes(b"\n".join(form.text for form in forms))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNC_DATABASE_URL", database_url)
    capsys.readouterr()
    assert run(("submit", str(file), "--valid-only", "--json")) == 1
    refused = {each["line"]: each["reason"] for each in json.loads(capsys.readouterr().out)["refused"]}
    said = {form.name: refused.get(number) for number, form in enumerate(forms, 1)}
    assert not differing(forms, said)


@pytest.mark.parametrize("field", ["accepted_from", "accepted_before"])
def test_a_time_in_a_query(anna: httpx.Client, field: str) -> None:
    expected: dict[str, str | None] = {
        **dict.fromkeys(MOMENTS),
        **dict.fromkeys(NO_MOMENTS, TIME.format(field=field)),
        **dict.fromkeys(OUTSIDE_MOMENTS, YEARS.format(field=field)),
    }
    said: dict[str, str | None] = {}
    for moment in expected:
        answer = anna.get("/api/outbox", params={field: moment})
        said[moment] = None if answer.status_code == 200 else words_of(answer)
    assert said == expected


def test_what_one_door_took_is_the_same_change_at_another(shop: httpx.Client, engine: Engine) -> None:
    """So a key that was used at one door gets the first answer at each."""
    for form in TAKEN:
        given = {"idempotency_key": f"one-{TAKEN.index(form)}"}
        if "key" in form.name:
            continue
        body = json.dumps(form.value | given)
        first = post(shop, "/api/changes", body.encode()).json()
        with engine.begin() as connection:
            again = record_change(connection, host=HOST, **form.value | given)
        assert (again.change_id, again.duplicate) == (first["change_id"], True), form.name


def test_nothing_that_was_refused_is_stored(shop: httpx.Client, engine: Engine) -> None:
    for form in REFUSED[-20:]:
        post(shop, "/api/changes", form.text)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM outbox_events")).scalar() == 0
        assert connection.execute(text("SELECT COUNT(*) FROM units")).scalar() == 0
