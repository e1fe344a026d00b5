"""Real roles with a secret mounted as in Kubernetes: what is taken out of it is refused within seconds, no restart."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import httpx
import pytest
from temporalio.client import Client

from oldhost_sync.temporal.client import writer_handle
from oldhost_sync.temporal.writer_client import WriterClient
from oldhost_sync.watched_file import LOOKED_AT_EVERY_SECONDS
from tests.faults.product import Product
from tests.integration.api.conftest import a_token
from tests.integration.system.changes import record
from tests.mounted_secret import MountedSecret
from workflows.messages import OperatorAct

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes]

SOON_SECONDS = LOOKED_AT_EVERY_SECONDS + 4


def status_for(product: Product, token: str) -> int:
    address = f"http://{product.settings.api_bind}/api/units"
    return httpx.get(address, headers={"Authorization": f"Bearer {token}"}, timeout=10).status_code


def test_a_token_that_is_removed_from_the_secret_is_refused_without_a_restart(product: Product, tmp_path: Path) -> None:
    leaving, staying = a_token("leaving", "app"), a_token("staying", "app")
    secret = MountedSecret(tmp_path / "api", tokens=f"{leaving.entry}\n{staying.entry}\n")
    product.settings = product.settings.model_copy(update={"api_tokens": (), "api_tokens_file": secret["tokens"]})
    api = product.start("api")
    api.wait_until(product.api.answers, 30)
    before = api.pid
    assert (status_for(product, "leaving"), status_for(product, "staying")) == (200, 200)
    secret.replace(tokens=f"{staying.entry}\n")
    product.wait_for("the refusal", lambda: status_for(product, "leaving") == 401, seconds=SOON_SECONDS)
    assert status_for(product, "staying") == 200
    assert api.pid == before
    assert "SYNC_API_TOKENS_FILE has changed and was read again" in api.said()
    assert leaving.sha256_hex not in api.said()


def test_an_act_under_a_key_that_was_removed_from_the_secret_is_not_verified(product: Product, tmp_path: Path) -> None:
    old, new = "o" * 32, "n" * 32
    secret = MountedSecret(tmp_path / "keys", acts=old)
    product.start_worker(act_keys_file=secret["acts"])
    product.start_writer()
    product.wait_for("the writer to know what waits", lambda: product.status()["state"] != "REBUILDING")
    acts = iter(["pause", "resume"] * 50)

    async def act(client: Client) -> None:
        async def connected() -> Client:
            return client

        api = WriterClient(product.host, query_seconds=5, update_seconds=15, connect=connected, act_keys=(old,))
        await api.update(next(acts), OperatorAct(operator="ana", reason="lunch", channel="api"))

    def is_verified() -> bool:
        product.ask(lambda client: asyncio.wait_for(act(client), 60))
        return bool(product.sql("SELECT verified FROM operator_audit ORDER BY id DESC LIMIT 1")[0]["verified"])

    assert is_verified()
    secret.replace(acts=new)
    product.wait_for("the refusal", lambda: not is_verified(), seconds=SOON_SECONDS)
    assert old not in product.children["worker"].said()


def test_relay_and_worker_encrypt_with_the_key_that_the_secret_has_now(product: Product, tmp_path: Path) -> None:
    old, new = (f"{name}={base64.b64encode(bytes([byte]) * 32).decode()}" for name, byte in (("2026", 1), ("2027", 2)))
    secret = MountedSecret(tmp_path / "keys", temporal=old)
    product.start("relay", temporal_keys_file=secret["temporal"])
    product.start_worker(temporal_keys_file=secret["temporal"])

    async def stored(client: Client) -> bytes:
        found = await writer_handle(client, product.host).fetch_history()
        return b"".join(event.SerializeToString() for event in found.events)

    def named() -> tuple[bool, bool]:
        (change_id,) = record(product, 1)
        product.wait_for("the change", lambda: product.fates()[change_id] == "APPLIED")
        history = product.ask(stored)
        return b"2026" in history, b"2027" in history

    assert named() == (True, False)
    secret.replace(temporal=f"{new}\n{old}\n")
    product.wait_for("the new key in use", lambda: named() == (True, True), seconds=60)
    assert [child for child in product.children.values() if not child.running] == []
