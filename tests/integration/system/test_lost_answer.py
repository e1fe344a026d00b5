"""An answer was lost although its operation was applied: each place that shows the change says how certain it is."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest

from oldhost_sync.console.paths import PREFIX, SIGN_IN
from oldhost_sync.stack.machine import free_port
from tests.faults.product import TOKEN, Product
from tests.integration.system.commands import oldhost_sync

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

EVENT = "guest_locked_out"
LOST, TOLD = "the-answer-was-lost", "the-answer-arrived"
WORDS = "unconfirmed: no answer of OldHost says that it has it"


def make(product: Product, key: str, entity_id: str) -> int:
    """A change that has reached its fate."""
    change_id = product.api.change(entity_id, EVENT, {}, key=key)
    product.wait_for("its fate", lambda: product.api.fate(key)["outcome"])
    return change_id


def certainty(change: dict[str, Any]) -> tuple[str, bool, bool]:
    return change["outcome"], change["unconfirmed"], change["unsure"]


def pages(product: Product, *change_ids: int) -> list[str]:
    """Each change's page of the console."""
    address = f"http://127.0.0.1:{product.api.port}"
    with httpx.Client(base_url=address, headers={"Origin": address}) as client:
        assert client.post(SIGN_IN, data={"token": TOKEN}).status_code == 303
        return [client.get(f"{PREFIX}/changes/{change_id}").text for change_id in change_ids]


def settled(product: Product, folder: Path) -> tuple[dict[int, str], dict[str, int]]:
    """The outcome of each change in the settlement file, and the file's sums, as if a day had passed."""
    folder.mkdir()
    for table in ("nonce_requests", "nonce_requests_archive"):
        product.sql(
            f"UPDATE {table} SET created_at = created_at - INTERVAL 2 DAY, "
            "completed_at = completed_at - INTERVAL 2 DAY WHERE completed_at IS NOT NULL"
        )
    oldhost_sync(product, "settlement", "write", "--dir", str(folder))
    oldhost_sync(product, "settlement", "verify", "--dir", str(folder))
    lines = [json.loads(line) for file in sorted(folder.iterdir()) for line in file.read_text().splitlines()]
    records = [line for line in lines if "change" in line]
    sums = next(line["outcomes"] for line in lines if line.get("outcomes"))
    return {record["change"]: record["outcome"] for record in records}, sums


def test_a_change_whose_answer_was_lost_is_unconfirmed_wherever_it_is_shown(product: Product, tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    product.start("relay")
    product.start_worker(metrics_bind=metrics)
    product.start_api()
    product.start_writer()
    told = make(product, TOLD, "U-1")
    product.fault("drop_after", next=1)
    lost = make(product, LOST, "U-2")
    expected = {told: ("APPLIED", False, False), lost: ("APPLIED", True, False)}

    assert [certainty(product.api.fate(key)) for key in (TOLD, LOST)] == list(expected.values())
    for path in ("/api/changes", "/api/outbox"):
        found = product.api.call("GET", path)[1]["changes"]
        assert {change["change_id"]: certainty(change) for change in found} == expected, path
    shown = [oldhost_sync(product, "change", "show", key) for key in (TOLD, LOST)]
    assert [WORDS in text for text in shown] == [False, True]
    typed = [json.loads(oldhost_sync(product, "change", "show", key, "--json")) for key in (TOLD, LOST)]
    assert [certainty(change) for change in typed] == list(expected.values())
    assert ["<strong>Unconfirmed:</strong>" in page for page in pages(product, told, lost)] == [False, True]
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert f'oldhost_sync_unconfirmed_total{{host="{product.host}"}} 1.0' in lines
    outcomes, sums = settled(product, tmp_path / "settled")
    assert outcomes == {told: "applied", lost: "unconfirmed"}
    assert (sums["applied"], sums["unconfirmed"]) == (1, 1)
    product.check_clean()
