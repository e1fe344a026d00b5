"""No secret of ours is told, whatever fails: each failure is provoked with a secret that is looked for everywhere."""

from __future__ import annotations

import base64
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from oldhost_sync.drivers.http.driver import make_driver
from oldhost_sync.oldhost.access import Access
from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.oldhost.refusals import ConnectionPace
from tests.certificates import Authority
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.connect_proxy import ConnectProxy, says
from tests.foreign_host.answer import Answer, Effect, page
from tests.foreign_host.host import ForeignHost, Request
from tests.integration.session.foreign_stage import ForeignStage
from tests.integration.session.stage import LIMITS, Process, send

pytestmark = pytest.mark.mariadb

ADDRESS = "127.0.0.1"
PASSWORD = "correct-horse-battery-staple"
SIGN_KEY = "a-key-that-signs-requests"
# As they travel, too.
SECRETS = [
    SIGN_KEY,
    PASSWORD,
    *(base64.b64encode(f"{user}:{PASSWORD}".encode()).decode() for user in ("writer", "proxied")),
]


@dataclass
class Witness(Process):
    """Keeps each error that a call raised."""

    errors: list[BaseException] = field(default_factory=list)

    def around(self, name: str, act: Callable[[], Any]) -> Any:
        try:
            return super().around(name, act)
        except BaseException as error:
            self.errors.append(error)
            raise


class SecretStage(ForeignStage):
    driver = make_driver({"sign": {"over": ["number", "body"], "header": "X-Signature"}})
    authority: Authority
    proxy: ConnectProxy


@pytest.fixture
def stage(mariadb_server: PrivateMariaDB, tmp_path: Path) -> Iterator[SecretStage]:
    authority = Authority(tmp_path)
    (tmp_path / "auth").write_text(f"basic writer:{PASSWORD}")
    (tmp_path / "proxy-auth").write_text(f"basic proxied:{PASSWORD}")
    (tmp_path / "sign.key").write_text(SIGN_KEY)
    tls = authority.server(ADDRESS)
    with mariadb_server.fresh_database() as engine, ForeignHost(tls=tls) as host, ConnectProxy() as proxy:
        stage = SecretStage(MariaWorld(engine, LIMITS.settle_seconds), host)
        stage.authority, stage.proxy, stage.host.authorization = authority, proxy, f"Basic {SECRETS[2]}"
        stage.access = Access(
            authority.file,
            auth=tmp_path / "auth",
            proxy=proxy.address,
            proxy_auth=tmp_path / "proxy-auth",
            sign_key=tmp_path / "sign.key",
        )
        yield stage
        stage.close()


def all_answer(answer: Answer) -> Callable[[SecretStage], None]:
    return lambda stage: stage.host.refuse_all(answer)


def operations_get(answer: Answer) -> Callable[[SecretStage], None]:
    def fail(stage: SecretStage) -> None:
        stage.host.always = lambda request: answer if request.is_operation else None

    return fail


def operations_are_echoed(status: int, error: str) -> Callable[[SecretStage], None]:
    """As a page for developers shows a request."""

    def echo(request: Request) -> Answer | None:
        shown = f"{request.headers} {PASSWORD} {SIGN_KEY}"
        return Answer(status, {"error": error, "reason": shown}) if request.is_operation else None

    def fail(stage: SecretStage) -> None:
        stage.host.always = echo

    return fail


def proxy_says(*pieces: bytes) -> Callable[[SecretStage], None]:
    def fail(stage: SecretStage) -> None:
        stage.proxy.script = says(*pieces)

    return fail


def file_holds(name: str, content: bytes) -> Callable[[SecretStage], None]:
    """One of our files holds this."""

    def fail(stage: SecretStage) -> None:
        file = stage.authority.folder / "wrong"
        file.write_bytes(content)
        stage.access = replace(stage.access, **{name: file})  # type: ignore[arg-type]

    return fail


def other_host_certificate(stage: SecretStage) -> None:
    stage.host.tls = stage.authority.server("other.example")


def refused_client_certificate(stage: SecretStage) -> None:
    stage.host.tls = stage.authority.server(ADDRESS, wants_certificate=True)


def no_proxy(stage: SecretStage) -> None:
    stage.proxy.stop()


def encrypted_key(stage: SecretStage) -> None:
    certificate, key = stage.authority.sign("writer.example", password=PASSWORD.encode())
    stage.access = replace(stage.access, cert=certificate, key=key)


ANSWERS = [
    page(200),
    page(302),
    page(401),
    page(407),
    page(500),
    Answer(cut=9),
    Answer(raw=b"HTTP/1.1 200 OK\r\nX: y\r\n y\x00\r\n\r\n"),
    Answer(resets=True),
    Answer(silent=True),
    Answer(400, {"error": "malformed", "reason": "no"}),
    Answer(422, {"error": "rejected", "reason": "no"}, effect=Effect.REJECTS),
]
FAILURES = [
    *map(all_answer, ANSWERS),
    *map(operations_get, ANSWERS),
    operations_are_echoed(422, "rejected"),
    operations_are_echoed(400, "malformed"),
    operations_are_echoed(500, "debug"),
    proxy_says(b"HTTP/1.1 407 No\r\n\r\n"),
    proxy_says(b"HTTP/1.1 502 No\r\n\r\n"),
    proxy_says(b"nonsense"),
    proxy_says(b""),
    no_proxy,
    other_host_certificate,
    refused_client_certificate,
    encrypted_key,
    *(
        file_holds(name, content)
        for name in ("auth", "proxy_auth", "ca", "cert", "sign_key")
        for content in (
            PASSWORD.encode(),
            f"digest writer:{PASSWORD}".encode(),
            f"basic writer:{PASSWORD}\xff".encode("latin-1"),
            f"basic writer:{PASSWORD}\nmore {SIGN_KEY}".encode(),
            PASSWORD.encode() * 400,
            f"-----BEGIN CERTIFICATE-----\n{PASSWORD}\n-----END CERTIFICATE-----".encode(),
        )
    ),
]


@pytest.mark.parametrize("fail", FAILURES)
def test_no_failure_tells_a_secret(
    stage: SecretStage, fail: Callable[[SecretStage], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fail(stage)
    witness, told = Witness(), []
    for _ in range(2):
        stage.pace = ConnectionPace()
        outcome = stage.open(witness)
        told.append(repr(outcome))
        if isinstance(outcome, Opened):
            told.append(repr(send(outcome.session, [stage.world.record()])))
            outcome.session.close("the next one")
    told += [error for each in witness.errors for error in words_of(each)]
    told += [caplog.text, repr(stage.access), *database(stage.world)]
    for secret in SECRETS:
        assert [words[max(0, words.find(secret) - 60) :][:200] for words in told if secret in words] == []


def words_of(error: BaseException | None) -> Iterator[str]:
    """All that a log with its trace could show of an error, and of those behind it, suppressed or not."""
    while error is not None:
        yield from (str(error), repr(error), repr(error.args), repr(vars(error)))
        if error.__cause__ is not error.__context__:
            yield from words_of(error.__cause__)
        error = error.__context__


def database(world: MariaWorld) -> Iterator[str]:
    """Every row of every table."""
    with world.engine.connect() as connection:
        for table in connection.execute(text("SHOW TABLES")).scalars().all():
            with contextlib.suppress(TypeError):
                yield repr(connection.execute(text(f"SELECT * FROM `{table}`")).all())
