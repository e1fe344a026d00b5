"""The OpenAPI document in the words of the console's page."""

from __future__ import annotations

from typing import Any

import pytest

from oldhost_sync.console.api_page import ApiDocument, Field, read_document

DOCUMENT: dict[str, Any] = {
    "info": {"description": "Takes changes."},
    "tags": [{"name": "changes", "description": "Changes"}, {"name": "health", "description": "Health"}],
    "paths": {
        "/api/changes": {
            "post": {
                "tags": ["changes"],
                "operationId": "changes_create",
                "summary": "Make a change",
                "x-roles": ["app"],
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 500}}
                ],
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {"$ref": "#/components/schemas/NewChange"},
                            "examples": {"an emergency": {"value": {"entity_id": "12B"}}},
                        }
                    }
                },
                "responses": {
                    "202": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Accepted"}}}},
                    "401": {"description": "No bearer token."},
                },
            }
        },
        "/healthz": {
            "get": {
                "tags": ["health"],
                "operationId": "health",
                "summary": "Alive?",
                "x-roles": [],
                "responses": {"200": {"description": "Yes"}},
            }
        },
    },
    "components": {
        "schemas": {
            "NewChange": {
                "description": "A change to make.",
                "required": ["entity_id"],
                "properties": {
                    "entity_id": {"type": "string", "maxLength": 128},
                    "not_before": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Accepted"}},
                },
            },
            "Accepted": {"enum": ["yes", "no"]},
        }
    },
}


@pytest.fixture
def api() -> ApiDocument:
    return read_document(DOCUMENT)


def test_routes_stand_under_their_tag_in_the_order_of_the_tags(api: ApiDocument) -> None:
    listed = [(chapter.title, [f"{each.method} {each.path}" for each in chapter.routes]) for chapter in api.chapters]
    assert listed == [("changes", ["POST /api/changes"]), ("health", ["GET /healthz"])]


def test_a_route_names_its_roles_body_answer_and_errors(api: ApiDocument) -> None:
    (route,) = api.chapters[0].routes
    assert (route.roles, route.body, route.answer) == (("app",), "NewChange", "Accepted")
    assert route.errors == (("401", "No bearer token."),)


def test_a_parameter_says_where_it_goes_and_its_bounds(api: ApiDocument) -> None:
    (route,) = api.chapters[0].routes
    assert route.parameters == (Field("limit (query)", "integer, 1 to 500", "", required=False, description=""),)


def test_examples_are_json_under_their_names(api: ApiDocument) -> None:
    (route,) = api.chapters[0].routes
    assert [(each.title, each.text) for each in route.examples] == [
        ("Example body: an emergency", '{\n  "entity_id": "12B"\n}')
    ]


def test_fields_tell_their_type_and_whether_they_are_needed(api: ApiDocument) -> None:
    shape = next(each for each in api.shapes if each.name == "NewChange")
    assert [(each.name, each.kind, each.shape, each.required) for each in shape.fields] == [
        ("entity_id", "string, at most 128 characters", "", True),
        ("not_before", "date-time or null", "", False),
        ("parts", "list of Accepted", "Accepted", False),
    ]


def test_a_shape_of_words_lists_them(api: ApiDocument) -> None:
    assert next(each.values for each in api.shapes if each.name == "Accepted") == ("yes", "no")
