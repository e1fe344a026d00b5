"""The application, put together: routes, problems, middleware, and the OpenAPI document of all that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import metadata
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig

from oldhost_sync.api.access import Door, LastUses, public_paths, rendered
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.error_answers import answer_errors
from oldhost_sync.api.fate_streams import FateStreams
from oldhost_sync.api.middleware import ApiMiddleware
from oldhost_sync.api.problems import ProblemBody
from oldhost_sync.api.requests import ReasonedRequest, understood_query
from oldhost_sync.api.routes.administration import AuditRoutes, NewRule, RuleRoutes, UsageRoutes
from oldhost_sync.api.routes.alerts import AlertRoutes
from oldhost_sync.api.routes.changes import BatchRoutes, ChangeRoutes, NewChange, NewChanges
from oldhost_sync.api.routes.dead_letters import DeadLetterRoutes, Letters, Replacement
from oldhost_sync.api.routes.events import EventRoutes
from oldhost_sync.api.routes.health import HealthRoutes
from oldhost_sync.api.routes.hosts import HostRoutes
from oldhost_sync.api.routes.outbox import EntityRoutes, OutboxRoutes, SearchRoutes
from oldhost_sync.api.routes.plan import PlanRoutes
from oldhost_sync.api.routes.units import UnitDetails, UnitRoutes, UnitStatus
from oldhost_sync.api.routes.withdrawals import WaitingChanges, WithdrawalRequest, WithdrawalRoutes
from oldhost_sync.api.routes.writer import (
    ActionResult,
    Flush,
    PauseRequest,
    Resolve,
    SeriesRoutes,
    SessionRoutes,
    WriterRoutes,
)
from oldhost_sync.api.telemetry import RequestTracer
from oldhost_sync.probes.health import running_during

# FastAPI's own spans, metrics and logs are off. It would create them as soon as the environment or a library sets up
# OpenTelemetry, and they hold whole paths with idempotency keys, and error texts.
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
_ROUTES = (
    UnitRoutes,
    BatchRoutes,
    ChangeRoutes,
    EventRoutes,
    OutboxRoutes,
    EntityRoutes,
    SearchRoutes,
    SeriesRoutes,
    SessionRoutes,
    PlanRoutes,
    WriterRoutes,
    DeadLetterRoutes,
    WithdrawalRoutes,
    AlertRoutes,
    RuleRoutes,
    UsageRoutes,
    AuditRoutes,
    HostRoutes,
    HealthRoutes,
)


def create_app(dependencies: Dependencies, *more: Callable[[FastAPI, Dependencies], Door | None]) -> FastAPI:
    """The ASGI application of one host; when it is served, so are those in its `state.others`. Each function of `more`
    adds further routes (the console), which must state their roles; for routes for browsers it returns the door that
    they are behind.
    """
    doors: list[Door] = []

    @asynccontextmanager
    async def lifespan(served: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(dependencies.close)
            for application in (served, *served.state.others):
                await stack.enter_async_context(application.state.kept())
            yield

    app = FastAPI(
        title="OldHost Sync",
        version=version(),
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        dependencies=[Depends(understood_query)],
        telemetry=NO_TELEMETRY,
    )
    answer_errors(app, partial(rendered, doors))
    for routes in _ROUTES:
        routes(dependencies).mount(app)
    for add_routes in more:
        door = add_routes(app, dependencies)
        doors += [door] if door is not None else []
    dependencies.metrics.watch_database(
        lambda: float(dependencies.database.circuit.is_open), lambda: float(dependencies.database.waiting)
    )
    known = public_paths(app)
    requests = RequestTracer(dependencies.tracer, dependencies.host) if dependencies.tracer else None
    app.add_middleware(ApiMiddleware, dependencies=dependencies, public_paths=known, doors=doors, requests=requests)
    app.state.kept = partial(_kept, dependencies, [dependencies.streams, *doors])
    app.state.others = ()
    app.state.end_streams = partial(_close, [dependencies.streams, *doors])
    app.state.metrics = dependencies.metrics
    app.openapi = lambda: document_of(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _kept(dependencies: Dependencies, ends: Sequence[FateStreams | Door]) -> AsyncIterator[None]:
    """Meanwhile what requests of one host leave behind is kept: quotas and uses of tokens, alerts about refused writes,
    refused sign-ins.
    """
    uses = LastUses(dependencies.host, dependencies.tokens, dependencies.database)
    async with (
        uses.kept(),
        running_during(dependencies.quotas.keep),
        running_during(dependencies.refused_writes.keep),
        running_during(dependencies.refused.keep),
    ):
        try:
            yield
        finally:
            await _close(ends)


async def _close(ends: Sequence[FateStreams | Door]) -> None:
    for each in ends:
        await each.close()


# ------------------------------------------------------------------------------------------------- the OpenAPI document

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
    PauseRequest,
    Flush,
    Resolve,
    NewRule,
    Letters,
    Replacement,
    WaitingChanges,
    WithdrawalRequest,
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
    "withdrawals": "Taking back what waits, after a look at what that does",
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
