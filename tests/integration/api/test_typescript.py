"""The example in TypeScript, whose types are made from the OpenAPI document, run by node against the API."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.mariadb
EXAMPLE = Path(__file__).parents[3] / "examples" / "typescript"
BUILT = EXAMPLE / "dist" / "example.js"


@pytest.mark.skipif(not BUILT.exists(), reason="`make typescript-client` builds it, and it is not here")
def test_a_change_is_recorded_and_found_from_typescript(address: str) -> None:
    environment = {**os.environ, "API_URL": address, "API_TOKEN": "shop"}
    told = [_run(environment, "k") for _ in range(2)]
    assert [each["idempotency_key"] for each in told] == ["k", "k"]
    assert told[0]["change_id"] == told[1]["change_id"]
    assert told[0]["state"] == "WAITING"


@pytest.mark.skipif(not BUILT.exists(), reason="`make typescript-client` builds it, and it is not here")
def test_a_refusal_says_in_words_what_to_do(address: str) -> None:
    environment = {**os.environ, "API_URL": address, "API_TOKEN": "nobody"}
    ended = subprocess.run(["node", BUILT], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "A bearer token is needed" in ended.stderr


def _run(environment: dict[str, str], key: str) -> dict[str, object]:
    done = subprocess.run(["node", BUILT, key], env=environment, capture_output=True, text=True, timeout=60, check=True)
    told: dict[str, object] = json.loads(done.stdout)
    return told


def test_the_lock_names_no_registry() -> None:
    assert "resolved" not in (EXAMPLE / "package-lock.json").read_text()
