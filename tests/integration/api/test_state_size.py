"""An entity with ever more event types: its state stays within its limit, at every door, so writes stay quick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from activities.submissions import record
from oldhost_sync import record_change, record_changes
from oldhost_sync.cli.main import run
from oldhost_sync.policy.limits import PAYLOAD_BYTES_MAX, STATE_BYTES_MAX
from oldhost_sync.store.errors import EntityRefused, InvalidChange
from oldhost_sync.store.intake.batch_recorder import ChangesRefused
from oldhost_sync.store.intake.change_recorder import RecordedChange
from workflows.messages import Submission

pytestmark = pytest.mark.mariadb

HOST = "oldhost"
SAYS = (
    "event_type is one too many for this entity: the last payloads of all its event types may have at most "
    f"{STATE_BYTES_MAX} bytes of JSON"
)
FULL = STATE_BYTES_MAX // PAYLOAD_BYTES_MAX


def change(number: int, entity_id: str = "U", **more: Any) -> dict[str, Any]:
    """With the largest payload, of an event type of its own."""
    payload = {"x": "y" * (PAYLOAD_BYTES_MAX - len('{"x":""}'))}
    return {"entity_type": "unit", "entity_id": entity_id, "event_type": f"e{number}", "payload": payload} | more


@pytest.fixture
def full(engine: Engine) -> Engine:
    """The unit U has as many event types as it can."""
    with engine.begin() as connection:
        for number in range(FULL):
            record_change(connection, host=HOST, **change(number))
    return engine


def counted(engine: Engine) -> tuple[int, int]:
    """Changes of U, and event types in its state."""
    with engine.connect() as connection:
        changes = connection.execute(text("SELECT COUNT(*) FROM outbox_events WHERE entity_id = 'U'")).scalar_one()
        state = connection.execute(text("SELECT state FROM units WHERE id = 'U'")).scalar_one()
    return changes, len(json.loads(state))


def test_a_request(shop: httpx.Client, full: Engine) -> None:
    answer = shop.post("/api/changes", json=change(FULL))
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"field": "event_type", "message": SAYS}]
    assert counted(full) == (FULL, FULL)
    assert shop.post("/api/changes", json=change(0, payload={"in": "its place"})).status_code == 202
    assert shop.post("/api/changes", json=change(FULL)).status_code == 202


def test_a_batch_refuses_that_entity_s_changes_and_no_other_s(shop: httpx.Client, full: Engine) -> None:
    batch = [change(FULL), change(0, "V"), change(0, payload={}), change(0, "W")]
    answer = shop.post("/api/changes/batch", json={"changes": batch})
    results = answer.json()["results"]
    assert [each["status"] for each in results] == [422, 202, 424, 202]
    assert results[0]["problem"]["errors"][0]["message"] == SAYS
    assert counted(full) == (FULL, FULL)


def test_many_writes_at_once_are_refused_by_themselves(shop: httpx.Client, full: Engine, address: str) -> None:
    """The group commit records them together with others."""
    from concurrent.futures import ThreadPoolExecutor

    entities = ["U", "A", "B", "C", "U", "D", "E"]
    with ThreadPoolExecutor(len(entities)) as pool:
        answers = list(pool.map(lambda entity: shop.post("/api/changes", json=change(FULL, entity)), entities))
    assert [answer.status_code for answer in answers] == [422 if entity == "U" else 202 for entity in entities]


def test_record_change(full: Engine) -> None:
    """The caller may catch the error and commit: nothing of the change is there."""
    with full.begin() as connection:
        with pytest.raises(InvalidChange) as refused:
            record_change(connection, host=HOST, **change(FULL))
        record_change(connection, host=HOST, **change(FULL, "V"))
    assert str(refused.value) == SAYS
    assert counted(full) == (FULL, FULL)


def test_record_changes(full: Engine) -> None:
    with full.begin() as connection, pytest.raises(ChangesRefused) as refused:
        record_changes(connection, [change(0, "V"), change(FULL), change(1)], host=HOST)
    kinds = [type(result) for result in refused.value.results]
    assert kinds == [RecordedChange, InvalidChange, EntityRefused]
    assert str(refused.value.results[1]) == SAYS


def test_several_changes_of_a_batch_that_are_too_much_together(engine: Engine) -> None:
    with engine.begin() as connection, pytest.raises(ChangesRefused, match="bytes of JSON"):
        record_changes(connection, [change(number) for number in range(FULL + 1)], host=HOST)


def test_a_submission_of_the_workflow(full: Engine) -> None:
    with full.begin() as connection:
        assert record(connection, HOST, Submission(change(FULL), "fallback")).refused == SAYS
        assert not record(connection, HOST, Submission(change(FULL, "V"), "other")).refused


def test_a_file(
    full: Engine, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in (change(FULL), change(FULL, "V"))))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNC_DATABASE_URL", database_url)
    capsys.readouterr()
    assert run(("submit", str(file), "--json")) == 1
    said = json.loads(capsys.readouterr().out)
    assert [(each["line"], SAYS in each["reason"]) for each in said["refused"]] == [(1, True)]
    assert counted(full) == (FULL, FULL)


def test_an_entity_that_is_no_unit(engine: Engine) -> None:
    booking = {"entity_type": "booking"}
    with engine.begin() as connection:
        for number in range(FULL):
            record_change(connection, host=HOST, **change(number) | booking)
        with pytest.raises(InvalidChange, match="bytes of JSON"):
            record_change(connection, host=HOST, **change(FULL) | booking)
