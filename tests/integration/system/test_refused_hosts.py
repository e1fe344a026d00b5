"""Hosts that do not let us in, each for another reason, on the real parts: each is named with what to do, none is asked
in a loop, and of all kinds of secrets none is told anywhere.
"""

from __future__ import annotations

import base64
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client

from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle
from tests.certificates import Authority
from tests.connect_proxy import ConnectProxy, says
from tests.faults.product import ROOT, Product, host_name
from tests.faults.product import TOKEN as API_TOKEN
from tests.foreign_host.answer import Answer, page
from tests.foreign_host.host import ForeignHost
from tests.integration.system.commands import oldhost_sync

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

ADDRESS = "127.0.0.1"
PASSWORD, TOKEN, SIGN_KEY = "correct-horse-battery-staple", "t0k3n-of-the-writer", "a-key-that-signs-requests"
BASIC, PROXY = (base64.b64encode(f"{user}:{PASSWORD}".encode()).decode() for user in ("writer", "proxied"))
FILES = {
    "basic": f"basic writer:{PASSWORD}",
    "bearer": f"bearer {TOKEN}",
    "proxy-auth": f"basic proxied:{PASSWORD}",
    "sign.key": SIGN_KEY,
}
SIGNED = """sign_key_file = "sign.key"
options = { sign = { over = ["number", "body"], header = "X-Signature" } }"""
ECHO = f"<h1>Log in</h1> you sent {BASIC} {TOKEN} {SIGN_KEY} {PASSWORD}".encode()
LOG_IN = Answer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ECHO), ECHO))
# The pauses double from 1 s up to 30 s.
CONNECTIONS_MAX, CONNECTIONS_A_MINUTE = 8, 3


def right(authority: Authority) -> ssl.SSLContext:
    return authority.server(ADDRESS)


def asks_for_ours(authority: Authority) -> ssl.SSLContext:
    return authority.server(ADDRESS, wants_certificate=True)


@dataclass(frozen=True)
class Refusal:
    """`says`: what the situation must say; `step`: what it must name. `lines`: of the hosts file."""

    says: str
    step: str
    lines: str = ""
    answer: Answer | None = None
    tls: Callable[[Authority], ssl.SSLContext | None] = right


REFUSALS = {
    "name": Refusal("certificate is for another address", "ca_file", tls=lambda by: by.server("other.example")),
    "expired": Refusal("certificate has expired", "renewed", tls=lambda by: by.server(ADDRESS, ends=-1)),
    "stranger": Refusal(
        "an authority that the CA file does not list",
        "ca_file",
        tls=lambda by: Authority(by.folder, "a stranger").server(ADDRESS),
    ),
    "plain": Refusal("no TLS within", "Check OldHost", tls=lambda _: None),
    "basic": Refusal("status 401", "auth_file", 'auth_file = "basic"', page(401)),
    "bearer": Refusal("status 403", "auth_file", 'auth_file = "bearer"', page(403)),
    "page": Refusal(
        "one to sign in, instead of OldHost's answer: status 200", "auth_file", 'auth_file = "basic"', LOG_IN
    ),
    "redirect": Refusal(
        "one to sign in, instead of OldHost's answer: status 302", "auth_file", 'auth_file = "bearer"', page(302)
    ),
    "signed": Refusal("status 401", "sign_key_file", SIGNED, page(401)),
    "certificate": Refusal("does not accept our certificate", "cert_file", tls=asks_for_ours),
    "key": Refusal(
        "does not accept our certificate",
        "cert_file",
        'cert_file = "writer.pem"\nkey_file = "writer.key"',
        tls=asks_for_ours,
    ),
    "proxy": Refusal(
        "refuses our credentials or our address: status 407",
        "proxy_auth_file",
        'proxy = "PROXY"\nproxy_auth_file = "proxy-auth"',
    ),
}


@dataclass
class Deployment:
    """`hosts`: by the refusal's name; `names`: theirs in the product; `secrets`: what nobody may read."""

    product: Product
    hosts: dict[str, ForeignHost]
    names: dict[str, str]
    proxy: ConnectProxy
    metrics: list[str]
    secrets: list[str]

    def situation(self, kind: str) -> str:
        return str(self.product.api.call("GET", f"/api/hosts/{self.names[kind]}/situation")[1])

    def connections(self, kind: str) -> int:
        return len(self.proxy.heads if kind == "proxy" else self.hosts[kind].connected_at)


@pytest.fixture
def deployment(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal) -> Iterator[Deployment]:
    authority = Authority(tmp_path)
    for name, line in FILES.items():
        (tmp_path / name).write_text(f"{line}\n")
    _, key = Authority(tmp_path, "another").sign("writer")
    secrets = [PASSWORD, TOKEN, SIGN_KEY, BASIC, PROXY, *key.read_text().splitlines()[1:-1]]
    names, hosts, lines = {kind: host_name(kind) for kind in REFUSALS}, {}, []
    binds = {role: f"{ADDRESS}:{free_port()}" for role in ("relay", "worker")}
    with ExitStack() as stack:
        proxy = stack.enter_context(ConnectProxy())
        proxy.script = says(b"HTTP/1.1 407 No\r\n\r\n")
        for kind, refusal in REFUSALS.items():
            host = hosts[kind] = stack.enter_context(ForeignHost(tls=refusal.tls(authority)))
            if refusal.answer is not None:
                host.refuse_all(refusal.answer)
            lines += [f"[hosts.{names[kind]}]", f'url = "https://{ADDRESS}:{host.port}"']
            lines += [
                'ca_file = "test authority.pem"',
                refusal.lines.replace("PROXY", f"http://{proxy.address.authority}"),
            ]
        file = tmp_path / "hosts.toml"
        file.write_text("\n".join(lines) + "\n")
        with Product(tmp_path, database, temporal.address, given={"hosts_file": file}) as product:
            product.start_simulator()
            product.start("relay", metrics_bind=binds["relay"])
            product.start_worker(metrics_bind=binds["worker"])
            product.start_api()
            metrics = [*binds.values(), f"{ADDRESS}:{product.api.port}"]
            yield Deployment(product, hosts, names, proxy, metrics, secrets)
            for name in names.values():
                product.ask(partial(end_writer, name))


async def end_writer(host: str, client: Client) -> None:
    await writer_handle(client, host).terminate("the test is over")


@pytest.mark.timeout(600)
def test_each_refusal_is_named_with_what_to_do_and_no_secret_is_told(deployment: Deployment) -> None:
    product, began = deployment.product, time.monotonic()
    change = {"entity_type": "unit", "entity_id": "u1", "event_type": "booking_created", "payload": {"n": 1}}
    for name in deployment.names.values():
        assert product.api.call("POST", f"/api/hosts/{name}/changes", change, key=name)[0] == 202
    unnamed = dict(REFUSALS)

    def named() -> bool:
        for kind, refusal in [*unnamed.items()]:
            told = deployment.situation(kind)
            if refusal.says in told and refusal.step in told:
                del unnamed[kind]
        return not unnamed

    try:
        product.wait_for("the names of all refusals", named, 180)
    except AssertionError as error:
        raise AssertionError({kind: deployment.situation(kind) for kind in unnamed}) from error
    alerts = {row["host"]: row["message"] for row in product.sql("SELECT host, message FROM alerts WHERE is_open = 1")}
    assert [kind for kind, refusal in REFUSALS.items() if refusal.says not in alerts[deployment.names[kind]]] == []
    most = CONNECTIONS_MAX + CONNECTIONS_A_MINUTE * (time.monotonic() - began) / 60
    counts = {kind: deployment.connections(kind) for kind in REFUSALS}
    assert {kind: count for kind, count in counts.items() if count > most} == {}
    told = "".join(everything(deployment))
    assert [secret for secret in deployment.secrets if secret in told] == []


def everything(deployment: Deployment) -> Iterator[str]:
    """All that anybody can read: logs, metrics, histories, tables, and what commands print."""
    product = deployment.product
    yield product.logs()
    for address in deployment.metrics:
        asked = urllib.request.Request(f"http://{address}/metrics", headers={"Authorization": f"Bearer {API_TOKEN}"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            yield answer.read().decode()
    for name in deployment.names.values():
        yield product.ask(partial(history, name))
    for table in product.sql("SHOW TABLES"):
        yield repr(product.sql(f"SELECT * FROM `{next(iter(table.values()))}`"))
    yield oldhost_sync(product, "--host", deployment.names["page"], "status", "--json")
    for kind in ("page", "key"):
        check = [sys.executable, "-m", "oldhost_sync.cli", "--host", deployment.names[kind], "driver", "check"]
        done = subprocess.run(
            check, cwd=ROOT, env=product.environment(), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 1
        yield done.stdout + done.stderr


async def history(host: str, client: Client) -> str:
    return str(await writer_handle(client, host).fetch_history())
