"""The OpenAPI document says everything that is answered."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from oldhost_sync.api.app import create_app


@pytest.fixture
def document(anna: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = anna.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_protected_route_documents_its_refusals(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        if operation["x-roles"]:
            assert {"400", "401", "403", "405", "500", "503"} <= set(operation["responses"]), name
            assert operation["security"] == [{"bearer": []}], name


def test_every_write_has_a_body_with_an_example(document: dict[str, Any]) -> None:
    writes = [(name, operation) for name, operation in operations(document) if name.startswith(("POST", "PUT"))]
    assert len(writes) == 9
    for name, operation in writes:
        content = operation["requestBody"]["content"]["application/json"]
        assert content["examples"], name
        assert {"413", "415", "422"} <= set(operation["responses"]), name


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    def follow(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                assert node["$ref"].removeprefix("#/components/schemas/") in schemas
            for value in node.values():
                follow(value)
        elif isinstance(node, list):
            for value in node:
                follow(value)

    follow(document)


def test_every_operation_has_a_summary_and_an_id_of_its_own(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    assert all(operation["summary"] for _, operation in operations(document))


def test_the_examples_are_accepted(document: dict[str, Any], anna: httpx.Client) -> None:
    for name, operation in operations(document):
        method, path = name.split()
        if not path.startswith(("/api/units", "/api/changes")) or "requestBody" not in operation:
            continue
        examples = operation["requestBody"]["content"]["application/json"]["examples"]
        for example in examples.values():
            answer = anna.request(method, path.replace("{unit_id}", "12B"), json=example["value"])
            assert answer.status_code == 202, (name, answer.text)


def test_building_the_application_opens_no_connection() -> None:
    from oldhost_sync.api.serve import build
    from oldhost_sync.settings import Settings

    create_app(build(Settings(database_url="mysql+pymysql://nobody:x@127.0.0.1:1/none")))
