"""The API: its OpenAPI document as a page, routes by their tag, fields of bodies and answers in tables.

Not FastAPI's own page: that is 1.5 MB of script from another server, begun by a script within the page (our content
policy forbids both, and a vendored copy changes only the first), and it could not read the document, which needs a
token and no cookie. This one needs no script.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access import WATCHERS
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import DOCS, PREFIX

Json = Mapping[str, Any]
_ENDS_WELL = HTTPStatus.BAD_REQUEST


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a field of a body. `kind`: its type in words; `shape`: the name of the table with its fields."""

    name: str
    kind: str
    shape: str
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Example:
    """A body or an answer, as JSON."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path. `body`, `answer`: the names of their shapes. `errors`: status and meaning."""

    method: str
    path: str
    name: str
    summary: str
    description: str
    roles: tuple[str, ...]
    parameters: tuple[Field, ...]
    body: str
    answer: str
    examples: tuple[Example, ...]
    errors: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Chapter:
    """The routes of one tag."""

    title: str
    description: str
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of a body or an answer; without any it is one of `values`."""

    name: str
    description: str
    fields: tuple[Field, ...]
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApiDocument:
    """The whole document, in its own order."""

    description: str
    chapters: tuple[Chapter, ...]
    shapes: tuple[Shape, ...]


def read_document(document: Json) -> ApiDocument:
    """`document`: as `GET /openapi.json` gives it."""
    routes: dict[str, list[Route]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            routes[operation["tags"][0]].append(_route(method.upper(), path, operation))
    chapters = tuple(Chapter(tag["name"], tag["description"], tuple(routes[tag["name"]])) for tag in document["tags"])
    shapes = tuple(_shape(name, shape) for name, shape in sorted(document["components"]["schemas"].items()))
    return ApiDocument(document["info"]["description"], chapters, shapes)


def _route(method: str, path: str, operation: Json) -> Route:
    responses = operation["responses"]
    good: Json = next((content for status, content in responses.items() if int(status) < _ENDS_WELL), {})
    return Route(
        method=method,
        path=path,
        name=operation["operationId"],
        summary=operation["summary"],
        description=operation.get("description", ""),
        roles=tuple(operation.get("x-roles", ())),
        parameters=tuple(map(_parameter, operation.get("parameters", ()))),
        body=_shape_of(_schema(operation.get("requestBody", {}))),
        answer=_shape_of(_schema(good)),
        examples=(*_examples("body", operation.get("requestBody", {})), *_examples("answer", good)),
        errors=tuple(
            (status, answer["description"]) for status, answer in responses.items() if int(status) >= _ENDS_WELL
        ),
    )


def _parameter(parameter: Json) -> Field:
    schema = parameter["schema"]
    description = parameter.get("description") or schema.get("description", "")
    name = f"{parameter['name']} ({parameter['in']})"
    return Field(name, _kind(schema), _shape_of(schema), parameter.get("required", False), description)


def _content(holder: Json) -> Json:
    """The first media type of a body or an answer."""
    return next(iter(holder.get("content", {}).values()), {})


def _schema(holder: Json) -> Json:
    schema: Json = _content(holder).get("schema", {})
    return schema


def _examples(title: str, holder: Json) -> Iterator[Example]:
    content = _content(holder)
    if "example" in content:
        yield Example(f"Example {title}", _as_text(content["example"]))
    for name, example in content.get("examples", {}).items():
        yield Example(f"Example {title}: {name}", _as_text(example["value"]))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _shape(name: str, schema: Json) -> Shape:
    required = schema.get("required", ())
    fields = tuple(
        Field(key, _kind(part), _shape_of(part), key in required, part.get("description", ""))
        for key, part in schema.get("properties", {}).items()
    )
    return Shape(name, schema.get("description", ""), fields, tuple(str(part) for part in schema.get("enum", ())))


def _shape_of(schema: Json) -> str:
    """The name of the shape that `schema` refers to, by itself, as an item, or as one of several; else nothing."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    inner = [schema["items"]] if "items" in schema else schema.get("anyOf", [])
    return next(filter(None, map(_shape_of, inner)), "")


def _kind(schema: Json) -> str:
    """A schema in a few words: "integer, 1 to 100", "list of Alert", "string or null"."""
    if "$ref" in schema:
        return _shape_of(schema)
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    kind = str(schema.get("format") or schema.get("const") or schema.get("type", "any"))
    return kind + "".join(_bounds(schema))


def _bounds(schema: Json) -> Iterator[str]:
    if "minimum" in schema or "maximum" in schema:
        yield f", {schema.get('minimum', '…')} to {schema.get('maximum', '…')}"
    if "maxLength" in schema:
        yield f", at most {schema['maxLength']} characters"


class ApiPage(Page):
    title = "API"
    path = f"{PREFIX}/api"

    def mount(self, add: Adder) -> None:
        add("GET", self.path, self.show, WATCHERS)
        add("GET", DOCS, self.show)

    async def show(self, request: Request) -> Response:
        return self.page(request, "api.html", document=await asyncio.to_thread(self._rendered, request.app))

    @cache  # noqa: B019 - pages live as long as their process
    def _rendered(self, app: FastAPI) -> Markup:
        return self.console.layout.part("api", api=read_document(app.openapi()))
