"""The OpenAPI document: from the routes and their records, each with its example."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from oldhost_sync.api.problems import ProblemBody
from oldhost_sync.api.requests import ReasonedRequest
from oldhost_sync.api.routes.administration import NewRule
from oldhost_sync.api.routes.changes import NewChange, NewChanges
from oldhost_sync.api.routes.dead_letters import Letters, Replacement
from oldhost_sync.api.routes.units import UnitDetails, UnitStatus
from oldhost_sync.api.routes.writer import ActionResult, Flush, Resolve

DESCRIPTION = """Accepts changes at once and sends them to OldHost in order, each exactly once.

Every write is answered with 202 as soon as it is durable. Use its `idempotency_key` to ask for its fate, and to repeat
the request when an answer was lost. Errors are `application/problem+json`: `detail` says what is wrong, `action` says
what to do."""

# The routes read request bodies themselves, so their schemas are added here.
BODIES = (
    UnitStatus,
    UnitDetails,
    NewChange,
    NewChanges,
    ReasonedRequest,
    Flush,
    Resolve,
    NewRule,
    Letters,
    Replacement,
)
# In the document's order.
TAGS = {
    "units": "Units: the state that applications show, and the two writes that most applications need",
    "changes": "Changes of any entity: create, schedule and cancel them, ask for their fate, follow all fates",
    "outbox": "Changes for people: filtered lists, and single changes by id",
    "entities": "One entity as the application shows it, next to what OldHost has",
    "search": "Find what a key, an id, a name or a property refers to",
    "series": "The state of the host in words, and its load over time",
    "sessions": "Sessions with OldHost: which worker held each one, and why it ended",
    "plan": "What if: a scenario, or the changes that wait now, simulated in virtual time",
    "writer": "The workflow that sends changes to OldHost: its state, and operators' actions",
    "dead letters": "Changes that OldHost rejected, and the decisions about them",
    "alerts": "Messages for operators, one for each cause: list, acknowledge and close them",
    "rules": "The class that the changes of each event type get",
    "usage": "What each token used, and its quotas",
    "audit": "Who did what, and why",
    "hosts": "The hosts that are served; every path also exists for each host: /api/hosts/{host}/…",
    "health": "Liveness, readiness and metrics of this process",
}
# The writer's answer to each action; the action is the last part of its path.
_DONE = {
    "pause": "paused",
    "resume": "resumed",
    "flush": "flush: 1 waiting key",
    "resolve": "2 operations from nonce 503 on are sent again as they were",
    "retry": "change 4712 waits again",
    "discard": "change 4712 is given up",
    "confirm": "change 4712 counts as applied",
}


def version() -> str:
    try:
        return metadata.version("oldhost-sync")
    except metadata.PackageNotFoundError:
        return "0+source"


def document_of(app: FastAPI) -> dict[str, Any]:
    """Made once."""
    if app.openapi_schema is None:
        tags = [{"name": name, "description": text} for name, text in TAGS.items()]
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=tags
        )
        components = document.setdefault("components", {})
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        schemas = components.setdefault("schemas", {})
        for model in (*BODIES, ProblemBody):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas[model.__name__] = schema
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        for route in app.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                for method in route.methods or ():
                    _add_example(document["paths"][route.path_format][method.lower()], route)
        app.openapi_schema = document
    return app.openapi_schema


def _add_example(operation: dict[str, Any], route: APIRoute) -> None:
    """That of the record that the route answers with, to each of its answers that end well."""
    example = getattr(route.response_model, "EXAMPLE", None)
    if route.response_model is ActionResult:
        action = route.path.rpartition("/")[2]
        example = ActionResult.EXAMPLE | {"action": action, "message": _DONE[action]}
    for status, answer in operation["responses"].items():
        content = answer.get("content", {}).get("application/json")
        if example is not None and content is not None and status.startswith("2"):
            content["example"] = example
