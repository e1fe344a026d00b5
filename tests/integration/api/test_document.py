"""The OpenAPI document says everything that is answered."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
import schemathesis

from oldhost_sync.api.app import BODIES, TAGS, create_app
from oldhost_sync.api.requests import parse_body
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.store.outbox.books import Books
from workflows import status_report

READ = {model.__name__: model for model in BODIES}


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
    assert len(writes) == 21
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


def test_every_tag_is_described_and_used(document: dict[str, Any]) -> None:
    described = [tag["name"] for tag in document["tags"]]
    assert described == list(TAGS)
    assert all(tag["description"] for tag in document["tags"])
    assert {tag for _, operation in operations(document) for tag in operation["tags"]} == set(described)


def test_an_operation_is_named_by_its_tag_and_what_it_does(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        assert operation["operationId"].startswith(operation["tags"][0].replace(" ", "_") + "_"), name


def test_a_key_stands_in_the_header_or_in_the_body_of_every_write_that_records(document: dict[str, Any]) -> None:
    recording = [operation for _, operation in operations(document) if "202" in operation["responses"]]
    assert len(recording) == 5
    for operation in recording:
        assert [each["name"] for each in operation["parameters"] if each["in"] == "header"] == ["Idempotency-Key"]
        model = READ[operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]]
        assert "idempotency_key" in model.model_fields


def test_every_operation_has_an_example_of_its_success_that_fits_its_schema(document: dict[str, Any]) -> None:
    schema = schemathesis.openapi.from_dict(document)
    for name, operation in operations(document):
        method, path = name.split()
        status, success = min(operation["responses"].items())
        ((media_type, content),) = success["content"].items()
        example = content["example"]
        told = example.encode() if media_type == "text/plain" else json.dumps(example).encode()
        answer = httpx.Response(
            int(status),
            headers={"Content-Type": media_type},
            content=told,
            request=httpx.Request(method, f"http://oldhost-sync{path}"),
        )
        answer.elapsed = timedelta()  # asked for, and nobody sent it
        schema[path][method].validate_response(answer)


def test_the_examples_of_answers_are_whole(document: dict[str, Any]) -> None:
    """A schema allows what it does not know; the examples have each field of a record, and no other."""
    records = document["components"]["schemas"]

    def compare(schema: dict[str, Any], example: Any, name: str) -> None:
        schema = records[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        for each in schema.get("anyOf", ()):
            if example is not None and each.get("type") != "null":
                compare(each, example, name)
        if "properties" in schema and schema.get("additionalProperties") is not True:
            assert set(example) == set(schema["properties"]), name
            for key, value in example.items():
                compare(schema["properties"][key], value, f"{name}.{key}")
        for value in example if "items" in schema else ():
            compare(schema["items"], value, name)

    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get("application/json")
            if status.startswith("2") and content:
                compare(content["schema"], content["example"], name)


def test_the_example_of_the_writers_status_is_what_it_reports(document: dict[str, Any]) -> None:
    operation = document["paths"]["/api/writer/status"]["get"]
    example = operation["responses"]["200"]["content"]["application/json"]["example"]
    reported = status_report.status(Machine(WriterPolicy(), 0), "oldhost", 0)
    assert fields_of(example["workflow"]) == fields_of(reported)
    assert Books(**example["books"]).balance


def fields_of(value: Any) -> Any:
    """The names alone, at all levels."""
    return {name: fields_of(each) for name, each in value.items()} if isinstance(value, dict) else None


def test_the_examples_of_requests_are_what_the_routes_read(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {"examples": {}})
        for example in content["examples"].values():
            model = READ[content["schema"]["$ref"].rpartition("/")[2]]
            read = parse_body(json.dumps(example["value"]).encode(), model)
            assert read.model_fields_set == set(example["value"]), name


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
    from oldhost_sync.roles.api import build
    from oldhost_sync.settings import Settings

    create_app(build(Settings(database_url="mysql+pymysql://nobody:x@127.0.0.1:1/none")))
