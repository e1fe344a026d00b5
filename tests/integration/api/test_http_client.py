"""The client of the HTTP API, blocking and with asyncio: both against the API itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync import http_client
from oldhost_sync.http_client import (
    AsyncSyncClient,
    ChangeFate,
    ClientError,
    Forbidden,
    Invalid,
    KeyReused,
    NotFound,
    SyncClient,
    TooLate,
    TooMany,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from tests.integration.api.test_feed import end

pytestmark = pytest.mark.mariadb

CHANGE = ("unit", "A-101", "unit_status_changed", {"status": "Clean"})


async def no_pause(_: float) -> None:
    """None."""


class Blocking:
    """Every method of the client with asyncio, called as the blocking one is."""

    def __init__(self, url: str, token: str, **given: Any) -> None:
        self._url, self._token, self._given = url, token, given

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def run(*arguments: Any, **named: Any) -> Any:
            async with AsyncSyncClient(self._url, self._token, **self._given) as client:
                client._sleep = no_pause
                result = getattr(client, name)(*arguments, **named)
                return await anext(result) if name == "follow" else await result

        return lambda *arguments, **named: asyncio.run(run(*arguments, **named))


@pytest.fixture(params=[SyncClient, Blocking], ids=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes a client whose pauses take no time."""

    def make(*given: Any, **named: Any) -> Any:
        client = request.param(*given, **named)
        if isinstance(client, SyncClient):
            client._sleep = lambda seconds: None
        return client

    return make


@pytest.fixture
def shop(kind: Callable[..., Any], address: str) -> Any:
    return kind(address, "shop")


# ------------------------------------------------------------------------------------------------------ the API itself


def test_a_change_is_recorded_once_however_often_it_is_submitted(shop: Any) -> None:
    first = shop.submit(*CHANGE, idempotency_key="k")
    again = shop.submit(*CHANGE, idempotency_key="k")
    assert (first.idempotency_key, first.sync_status, first.replayed) == ("k", "PENDING_SYNC", False)
    assert (again.change_id, again.replayed) == (first.change_id, True)


def test_a_change_without_a_key_gets_one(shop: Any) -> None:
    accepted = shop.submit(*CHANGE)
    assert shop.fate(accepted.idempotency_key).state == "WAITING"


def test_a_key_of_another_change_is_refused_as_that(shop: Any) -> None:
    shop.submit(*CHANGE, idempotency_key="k")
    with pytest.raises(KeyReused):
        shop.submit("unit", "A-102", "unit_status_changed", {"status": "Clean"}, idempotency_key="k")


def test_an_invalid_change_names_the_wrong_fields(shop: Any) -> None:
    with pytest.raises(Invalid) as refused:
        shop.submit("unit", "A-101", "no spaces", {})
    assert list(refused.value.fields) == ["body.event_type"]
    assert refused.value.action


def test_a_batch_has_an_item_for_each_change_in_their_order(shop: Any) -> None:
    named = {"entity_type": "unit", "event_type": "checked_out", "payload": {}}
    when = datetime.now(UTC)
    good, bad = {**named, "entity_id": "A-1", "occurred_at": when}, {**named, "entity_id": "A-2", "payload": 7}
    items = shop.submit_batch([good, bad, {**named, "entity_id": "A-3", "idempotency_key": "mine"}])
    assert [item.accepted is not None for item in items] == [True, False, True]
    assert isinstance(items[1].error, Invalid)
    assert items[2].accepted.idempotency_key == "mine"


def test_a_scheduled_change_can_be_cancelled_and_a_recorded_one_can_not(shop: Any) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    assert shop.submit(*CHANGE, idempotency_key="later", not_before=later).sync_status == "SCHEDULED"
    assert shop.cancel("later").tzinfo is not None
    assert shop.fate("later").is_final
    shop.submit(*CHANGE, idempotency_key="now")
    with pytest.raises(TooLate):
        shop.cancel("now")


def test_who_waits_gets_the_state_so_far_and_the_fate_once_it_is_there(shop: Any, engine: Engine) -> None:
    accepted = shop.submit(*CHANGE)
    assert not shop.wait(accepted.idempotency_key, seconds=0).is_final
    with engine.begin() as connection:
        end(connection, accepted.change_id)
    fate = shop.wait(accepted.idempotency_key, seconds=60)
    assert (fate.state, fate.is_final, fate.change_id) == ("APPLIED", True, accepted.change_id)


def test_fates_are_followed_from_a_cursor(shop: Any, engine: Engine) -> None:
    ids = [shop.submit("unit", f"A-{number}", "checked_out", {}).change_id for number in range(3)]
    with engine.begin() as connection:
        for change_id in ids:
            end(connection, change_id)
    if isinstance(shop, Blocking):
        fate, cursor = shop.follow()
        assert (fate.change_id, cursor) == (ids[0], None)
        return
    followed = shop.follow()
    seen = [next(followed) for _ in ids]
    assert [fate.change_id for fate, _ in seen] == ids
    assert [cursor is None for _, cursor in seen] == [True, True, False], "none is lost if its work is interrupted"
    more = shop.submit("unit", "B", "checked_out", {}).change_id
    with engine.begin() as connection:
        end(connection, more)
    assert next(shop.follow(seen[-1][1]))[0].change_id == more


@pytest.mark.parametrize(
    ("token", "error"), [("nobody", Unauthenticated), ("vera", Forbidden)], ids=["unknown", "a viewer's"]
)
def test_a_token_that_may_not_is_told_so(
    kind: Callable[..., Any], address: str, token: str, error: type[ClientError]
) -> None:
    with pytest.raises(error):
        kind(address, token).submit(*CHANGE)


def test_a_change_that_nobody_knows_is_not_found(shop: Any) -> None:
    with pytest.raises(NotFound):
        shop.fate("a/key with spaces?")


def test_a_token_is_in_no_representation(address: str) -> None:
    assert "shop" not in repr(http_client._Target(address, "shop", None, 1.0))


# -------------------------------------------------------------------------------------------- an API that is in trouble


class Trouble(ThreadingHTTPServer):
    """Answers each request by the next of `answers`: a status, or None to close; 202 once there are no more."""

    body = b'{"sync_status": "PENDING_SYNC", "change_id": 1, "idempotency_key": "k", "of_a_newer_release": 1}'

    def __init__(self, answers: list[tuple[int, str] | None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Trouble

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        answer = self.server.answers.pop(0) if self.server.answers else (202, "")
        if answer is None:
            self.close_connection = True
            return
        status, retry_after = answer
        body = self.server.body
        self.send_response(status)
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def trouble() -> Iterator[Callable[..., Trouble]]:
    servers: list[Trouble] = []

    def start(*answers: tuple[int, str] | None) -> Trouble:
        servers.append(Trouble([*answers]))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,)).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_write_without_an_answer_is_repeated_with_the_same_key(
    kind: Callable[..., Any], trouble: Callable[..., Trouble]
) -> None:
    server = trouble(None, (503, "1"), (429, "soon"), None)
    accepted = kind(server.url, "shop").submit(*CHANGE)
    assert (accepted.change_id, len(server.bodies), len(set(server.bodies))) == (1, 5, 1)


@pytest.mark.parametrize(("status", "error"), [(503, Unavailable), (429, TooMany)])
def test_who_is_refused_each_time_is_told_in_the_end(
    kind: Callable[..., Any], trouble: Callable[..., Trouble], status: int, error: type[ClientError]
) -> None:
    server = trouble(*[(status, "1")] * 20)
    with pytest.raises(error):
        kind(server.url, "shop").submit(*CHANGE)
    assert len(server.bodies) == http_client.REQUESTS_MAX


def test_who_never_gets_an_answer_is_told_so(kind: Callable[..., Any]) -> None:
    with pytest.raises(Unreachable, match="repeat it with its key"):
        kind("http://127.0.0.1:1", "shop").submit(*CHANGE)


@pytest.mark.parametrize("status", [302, 418, 500])
def test_what_no_one_foresaw_is_an_error_with_its_status_and_is_not_repeated(
    kind: Callable[..., Any], trouble: Callable[..., Trouble], status: int
) -> None:
    server = trouble((status, ""))
    with pytest.raises(ClientError) as refused:
        kind(server.url, "shop").submit(*CHANGE)
    assert (refused.value.status, len(server.bodies)) == (status, 1)


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b"", b"[]"])
def test_a_yes_that_is_not_the_api_s_is_an_error_of_ours(
    kind: Callable[..., Any], trouble: Callable[..., Trouble], body: bytes
) -> None:
    server = trouble((200, ""))
    server.body = body
    with pytest.raises(ClientError, match="is not the API's") as refused:
        kind(server.url, "shop").submit(*CHANGE)
    assert (refused.value.kind, len(server.bodies)) == ("unreadable", 1)


def test_pauses_are_those_that_the_api_asks_for_within_limits() -> None:
    import httpx

    steps = http_client._fate("k")
    next(steps)
    pauses = []
    for asked in ("7", "9" * 9, "", "", "x"):
        pauses.append(steps.send(httpx.Response(503, headers={"Retry-After": asked})))
        assert isinstance(steps.send(None), http_client._Request)
    assert pauses == [7.0, http_client.WAIT_SECONDS_MAX, 0.4, 0.8, 1.6]


def test_a_fate_is_final_or_it_is_not() -> None:
    assert ChangeFate("k", "NO_OP", "unit", "A", "x").is_final
    assert not ChangeFate("k", "IN_FLIGHT", "unit", "A", "x").is_final


def test_a_batch_with_a_key_tells_how_far_it_is(shop: Any) -> None:
    one = dict(zip(("entity_type", "entity_id", "event_type", "payload"), CHANGE, strict=True))
    items = shop.submit_batch([one, one | {"entity_id": "A-102"}], batch_key="night")
    assert [item.accepted.idempotency_key for item in items] == ["night:0", "night:1"]
    assert shop.progress("night") == http_client.BatchProgress(2, 2, {"WAITING": 2})
