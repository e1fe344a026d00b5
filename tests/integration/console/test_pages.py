"""What every page of the console has in common, and what the overview says while something is away."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import Engine, text

from oldhost_sync import console
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.writer_link import writer_away
from oldhost_sync.console.app import ConsoleOptions
from oldhost_sync.console.paths import PREFIX, SIGN_IN
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.audit import record_act
from tests.integration.api.conftest import HOST, ScriptedWriter, served
from tests.integration.console.conftest import an_app, browser
from workflows.messages import workflow_id

FOLDER = Path(console.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").rglob("*.html"))
WHY = {"reason": "OldHost's people asked"}


class Inline(HTMLParser):
    """Collects what a strict policy forbids, and every address that a page loads or leads to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forbidden: list[str] = []
        self.addresses: list[str] = []
        self.in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.forbidden += [name for name in given if name.startswith("on") or name in {"style", "srcdoc"}]
        self.forbidden += [tag] if tag == "style" or (tag == "script" and "src" not in given) else []
        self.addresses += [str(given[name]) for name in ("src", "href", "action", "formaction") if name in given]


def pages_of(app: FastAPI) -> list[str]:
    """Every page that takes no parameter in its path."""
    return [
        route.path
        for route in app.routes
        if isinstance(route, APIRoute)
        if "GET" in (route.methods or ()) and route.path.startswith(PREFIX) and "{" not in route.path
    ]


def answers(app: FastAPI, client: httpx.Client) -> dict[str, httpx.Response]:
    """All pages, and an error as a page; not what streams."""
    paths = [path for path in pages_of(app) if not path.endswith(("/stream", "/link"))]
    return {path: client.get(path) for path in [*paths, f"{PREFIX}/nothing-here"]}


def test_every_page_keeps_foreign_code_and_frames_out(app: FastAPI, anna: httpx.Client) -> None:
    for path, answer in answers(app, anna).items():
        policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
        assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'", path
        assert set(policy.values()) == {"'self'"}, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        # "no-referrer" would make browsers send "Origin: null" with the console's own forms.
        assert answer.headers["referrer-policy"] == "same-origin"


def test_no_page_has_code_or_styles_within_or_names_another_site(app: FastAPI, anna: httpx.Client) -> None:
    for path, answer in answers(app, anna).items():
        page = Inline(answer.text)
        assert page.forbidden == [], path
        assert [each for each in page.addresses if not each.startswith((PREFIX, "#"))] == [], path


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_no_template_has_code_or_styles_within(template: Path) -> None:
    page = template.read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:|\|\s*safe|https?://", page) == []


def test_what_a_page_loads_is_there_and_may_be_kept(anna: httpx.Client) -> None:
    assets = [each for each in Inline(anna.get(PREFIX).text).addresses if "/static/" in each]
    assert {each.rpartition(".")[2] for each in assets} == {"css", "js", "svg"}
    for each in assets:
        answer = anna.get(each)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert anna.get(re.sub("/static/[0-9a-f]+/", "/static/0000/", each)).status_code == 404


def test_every_page_has_landmarks_and_a_way_past_the_navigation(app: FastAPI, anna: httpx.Client) -> None:
    for path, answer in answers(app, anna).items():
        for part in ('<html lang="en"', 'class="skip" href="#main"', "<header", '<main id="main"', "<h1", "<footer"):
            assert part in answer.text, (path, part)


def test_the_overview_says_first_what_is_wrong(anna: httpx.Client, writer: ScriptedWriter, engine: Engine) -> None:
    writer.status |= {"state": "PAUSED", "paused": {"operator": "bob", "reason": "an hour of <b>quiet</b>"}}
    with engine.begin() as connection:
        record_act(connection, host=HOST, action="pause", operator=at_the_terminal("bob"), reason="quiet")
        raise_alert(connection, HOST, "forecast", "warning", "it will be late")
    page = anna.get(PREFIX).text
    assert (
        page.index("PAUSED")
        < page.index("bob (command-line, not verified) paused it")
        < page.index("it will be late")
        < page.index("Lanes")
    )
    assert "an hour of &lt;b&gt;quiet&lt;/b&gt;" in page


def test_without_temporal_the_page_says_so_and_shows_what_the_database_knows(
    anna: httpx.Client, writer: ScriptedWriter
) -> None:
    writer.problem = writer_away("Temporal or the worker does not answer")
    page = anna.get(PREFIX)
    assert page.status_code == 200
    assert page.text.index("NO WRITER") < page.text.index("Temporal or the worker does not answer.")
    assert "Books" in page.text


@pytest.mark.parametrize("action", ["pause", "resume", "flush"])
def test_an_act_carries_the_name_of_who_is_signed_in_and_the_reason(
    anna: httpx.Client, writer: ScriptedWriter, action: str
) -> None:
    answer = anna.post(f"{PREFIX}/{action}", data=WHY)
    assert (answer.status_code, answer.headers["location"]) == (303, PREFIX)
    ((name, request),) = writer.acts
    assert (name, request.operator, request.reason) == (action, "anna", WHY["reason"])
    assert f"{action}: done" in anna.get(PREFIX).text
    assert f"{action}: done" not in anna.get(PREFIX).text


def test_a_flush_may_be_of_one_entity(anna: httpx.Client, writer: ScriptedWriter) -> None:
    anna.post(f"{PREFIX}/flush", data=WHY | {"entity_type": "unit", "entity_id": "12B"})
    ((_, request),) = writer.acts
    assert (request.entity_type, request.entity_id) == ("unit", "12B")


@pytest.mark.parametrize("form", [{"reason": ""}, {"reason": " "}, WHY | {"operator": "bob"}, {"reason": "x" * 1_025}])
def test_nobody_acts_without_a_reason_or_in_another_s_name(
    anna: httpx.Client, writer: ScriptedWriter, form: dict[str, str]
) -> None:
    assert anna.post(f"{PREFIX}/pause", data=form).status_code in {400, 422}
    assert writer.acts == []


def test_an_act_that_the_writer_refuses_is_told_on_a_page(anna: httpx.Client, writer: ScriptedWriter) -> None:
    writer.problem = Problem(409, "refused", "The writer refused to resume", "It is not paused.", "See the status.")
    answer = anna.post(f"{PREFIX}/resume", data=WHY)
    assert answer.status_code == 409
    assert "It is not paused." in answer.text


def test_a_form_is_bounded_and_only_a_form(anna: httpx.Client) -> None:
    assert anna.post(f"{PREFIX}/pause", json=WHY).status_code == 415
    assert anna.post(f"{PREFIX}/pause", data={"reason": "x" * 200_000}).status_code == 413
    broken = anna.post(
        f"{PREFIX}/pause", content=b"reason=\xff", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert broken.status_code == 400


def test_what_holds_a_nonce_is_shown(anna: httpx.Client, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sent_at) "
                "VALUES (:host, 4711, 'k', 1, 1, '{}', 'SENT', UTC_TIMESTAMP(6))"
            ),
            {"host": HOST},
        )
    assert "4\u202f711" in anna.get(PREFIX).text


@pytest.mark.parametrize(("held", "more"), [(40, False), (41, True)])
def test_who_sees_the_next_forty_operations_is_told_whether_there_are_more(
    anna: httpx.Client, engine: Engine, held: int, more: bool
) -> None:
    """Two sends to a quick host hold up to 200 nonces."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status) SELECT "
                f":host, 7000 + seq, seq, seq, 1, '{{}}', 'RESERVED' FROM seq_1_to_{held}"
            ),
            {"host": HOST},
        )
    page = anna.get(PREFIX).text
    assert "7\u202f040" in page
    assert "7\u202f041" not in page
    assert ("and more, which are sent after these" in page) is more


def test_a_part_that_can_t_be_shown_hides_no_other(anna: httpx.Client, writer: ScriptedWriter) -> None:
    del writer.status["rates"]
    page = anna.get(PREFIX)
    assert page.status_code == 200
    assert "This part (flow) can&#39;t be shown" in page.text or "This part (flow) can't be shown" in page.text
    assert "SENDING" in page.text


def test_rates_say_over_what_time_and_what_is_usual(anna: httpx.Client, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sends, "
                "sent_at, completed_at) SELECT :host, seq, seq, seq, 1, '{}', 'APPLIED', 1, "
                "'2026-05-01 12:00:00' + INTERVAL seq SECOND, '2026-05-01 12:00:00.350' + INTERVAL seq SECOND "
                "FROM seq_1_to_50"
            ),
            {"host": HOST},
        )
    page = anna.get(PREFIX).text
    assert "usually 350" in page
    assert page.count("over the last 5 min") == 2


def test_before_enough_was_sent_nothing_is_usual(anna: httpx.Client) -> None:
    assert "the usual time is not known yet" in anna.get(PREFIX).text


@pytest.mark.parametrize("theme", ["light", "dark", "auto"])
def test_light_or_dark_is_remembered(anyone: httpx.Client, theme: str) -> None:
    anyone.post(f"{PREFIX}/theme", data={"theme": theme, "next": SIGN_IN})
    assert f'data-theme="{theme}"' in anyone.get(SIGN_IN).text


def test_the_page_of_the_api_has_every_route_of_the_document_and_every_shape_that_it_links_to(
    app: FastAPI, vera: httpx.Client
) -> None:
    page = vera.get(f"{PREFIX}/api").text
    for path, methods in app.openapi()["paths"].items():
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in page, path
        assert f"<code>{path}</code>" in page
    links = {each.removeprefix("#") for each in Inline(page).addresses if each.startswith("#")}
    assert [each for each in links if f'id="{each}"' not in page] == []


def test_pages_link_to_the_writer_in_temporals_ui_where_its_address_is_set(
    database_url: str, writer: ScriptedWriter
) -> None:
    options = ConsoleOptions(temporal_ui="https://temporal.example.com/namespaces/sync/")
    with served(an_app(database_url, writer, options)) as address, browser(address, "vera") as vera:
        page = vera.get(f"{PREFIX}/rules").text
    assert f'href="https://temporal.example.com/namespaces/sync/workflows/{workflow_id(HOST)}"' in page


def test_without_that_address_no_page_speaks_of_it(vera: httpx.Client) -> None:
    assert "in Temporal's UI" not in vera.get(f"{PREFIX}/rules").text
