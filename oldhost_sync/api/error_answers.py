"""Problems as HTTP answers: every error of an application becomes a problem, and every problem an answer.

Apart from the problems, which the command line loads, too: FastAPI takes longer to load than all else.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from oldhost_sync.api.problems import (
    MEDIA_TYPE,
    Problem,
    database_away,
    fields_invalid,
    method_not_allowed,
    of_store_error,
)
from oldhost_sync.store.errors import CommitUncertain, StoreError


def as_response(problem: Problem) -> Response:
    return JSONResponse(problem.content, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def of_http_exception(request: Request, error: HTTPException) -> Problem:
    """The framework's own errors as problems."""
    path = request.url.path[:200]
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"No route matches {path!r}."
        return Problem(404, "unknown-path", "There is nothing here", detail, "See GET /openapi.json.")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return method_not_allowed(request.method, ", ".join(_methods_of(request)))
    title = "The request can't be read"
    return Problem(error.status_code, "bad-request", title, str(error.detail), "See GET /openapi.json.")


def _methods_of(request: Request) -> list[str]:
    """All methods of the path: several routes may share it, and the framework names only those of the first route."""
    methods = {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def answer_errors(app: FastAPI, answer: Callable[[Request, Problem], Response]) -> None:
    """Turn every error of `app` into a problem; `answer` turns the problem into an answer."""

    @app.exception_handler(Problem)
    async def on_problem(request: Request, error: Problem) -> Response:
        return answer(request, error)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        return answer(request, of_http_exception(request, error))

    @app.exception_handler(RequestValidationError)
    async def on_validation(request: Request, error: RequestValidationError) -> Response:
        return answer(request, fields_invalid(error.errors()))

    @app.exception_handler(StoreError)
    async def on_store(request: Request, error: StoreError) -> Response:
        if isinstance(error, CommitUncertain) and request.method == "GET":
            return answer(request, database_away(str(error)))  # a read has no effect that could be uncertain
        return answer(request, of_store_error(error))
