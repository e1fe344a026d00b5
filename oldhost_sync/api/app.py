"""The application, put together: routes, problems and middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from fastapi import Depends, FastAPI
from fastapi.telemetry import TelemetryConfig

from oldhost_sync.api.access.rights import Door, public_paths, rendered
from oldhost_sync.api.access.tokens import LastUses
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.document import DESCRIPTION, document_of, version
from oldhost_sync.api.error_answers import answer_errors
from oldhost_sync.api.middleware import ApiMiddleware
from oldhost_sync.api.requests import understood_query
from oldhost_sync.api.routes.administration import AuditRoutes, RuleRoutes, UsageRoutes
from oldhost_sync.api.routes.alerts import AlertRoutes
from oldhost_sync.api.routes.changes import BatchRoutes, ChangeRoutes
from oldhost_sync.api.routes.dead_letters import DeadLetterRoutes
from oldhost_sync.api.routes.health import HealthRoutes
from oldhost_sync.api.routes.hosts import HostRoutes
from oldhost_sync.api.routes.outbox import EntityRoutes, OutboxRoutes, SearchRoutes
from oldhost_sync.api.routes.plan import PlanRoutes
from oldhost_sync.api.routes.units import UnitRoutes
from oldhost_sync.api.routes.writer import SeriesRoutes, SessionRoutes, WriterRoutes
from oldhost_sync.api.telemetry import RequestTracer
from oldhost_sync.probes.health import running_during

# FastAPI's own spans, metrics and logs are off. It would create them as soon as the environment or a library sets up
# OpenTelemetry, and they hold whole paths with idempotency keys, and error texts.
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
_ROUTES = (
    UnitRoutes,
    BatchRoutes,
    ChangeRoutes,
    OutboxRoutes,
    EntityRoutes,
    SearchRoutes,
    SeriesRoutes,
    SessionRoutes,
    PlanRoutes,
    WriterRoutes,
    DeadLetterRoutes,
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
    app.state.kept = partial(_kept, dependencies, doors)
    app.state.others = ()
    app.state.end_streams = partial(_close, doors)
    app.state.metrics = dependencies.metrics
    app.openapi = lambda: document_of(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _kept(dependencies: Dependencies, doors: Sequence[Door]) -> AsyncIterator[None]:
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
            await _close(doors)


async def _close(doors: Sequence[Door]) -> None:
    for door in doors:
        await door.close()
