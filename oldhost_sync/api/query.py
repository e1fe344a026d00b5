"""Query parameters: those that a route does not know are refused, on every route.

Otherwise a misspelt filter would be ignored silently, and the answer taken for a filtered one.
"""

from __future__ import annotations

from collections import Counter

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from oldhost_sync.api.problems import fields_invalid


async def understood_query(request: Request) -> None:
    """A dependency of the application; raises 422, which names each parameter that is unknown or given twice."""
    if not request.scope["query_string"]:
        return
    route = request.scope.get("route")
    known = _parameters(route.dependant) if isinstance(route, APIRoute) else frozenset()
    given = Counter(name for name, _ in request.query_params.multi_items())
    unknown = "is no parameter of this route; it takes " + (", ".join(sorted(known)) or "none")
    errors = [
        {"loc": ("query", name[:100]), "msg": "is given more than once" if name in known else unknown}
        for name, times in given.items()
        if times > 1 or name not in known
    ]
    if errors:
        raise fields_invalid(errors)


def _parameters(dependant: Dependant) -> frozenset[str]:
    """Its own, and those of what it depends on."""
    own = frozenset(field.alias for field in dependant.query_params)
    return own.union(*(_parameters(each) for each in dependant.dependencies))
