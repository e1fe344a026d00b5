"""Query parameters: every route refuses parameters that it does not know.

Otherwise a misspelt filter would be ignored silently, and the unfiltered answer would be taken for a filtered one.
"""

from __future__ import annotations

from collections import Counter

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from oldhost_sync.api.problems import fields_invalid


async def understood_query(request: Request) -> None:
    """A dependency of all routes. Raises 422, which names each parameter that is unknown or given more than once."""
    if not request.scope["query_string"]:
        return
    route = request.scope.get("route")
    known = _parameters(route.dependant) if isinstance(route, APIRoute) else frozenset()
    given = Counter(name for name, _ in request.query_params.multi_items())
    unknown = "is not a parameter of this route, which takes " + (", ".join(sorted(known)) or "none")
    errors = [
        {"loc": ("query", name[:100]), "msg": "is given more than once" if name in known else unknown}
        for name, times in given.items()
        if times > 1 or name not in known
    ]
    if errors:
        raise fields_invalid(errors)


def _parameters(dependant: Dependant) -> frozenset[str]:
    """The query parameters of a route, including those of its dependencies."""
    own = frozenset(field.alias for field in dependant.query_params)
    return own.union(*(_parameters(each) for each in dependant.dependencies))
