"""Query parameters: those that a route does not know are refused, on every route.

Otherwise a misspelt filter would be ignored silently, and the answer taken for a filtered one.
"""

from __future__ import annotations

from collections import Counter

from fastapi import Request
from fastapi.routing import APIRoute

from oldhost_sync.api.problems import fields_invalid


async def understood_query(request: Request) -> None:
    """A dependency of the application; raises 422, which names each parameter that is unknown or given twice."""
    if not request.scope["query_string"]:
        return
    route = request.scope.get("route")
    known = {field.alias for field in route.dependant.query_params} if isinstance(route, APIRoute) else set()
    given = Counter(name for name, _ in request.query_params.multi_items())
    unknown = "is no parameter of this route; it takes " + (", ".join(sorted(known)) or "none")
    errors = [
        {"loc": ("query", name[:100]), "msg": "is given more than once" if name in known else unknown}
        for name, times in given.items()
        if times > 1 or name not in known
    ]
    if errors:
        raise fields_invalid(errors)
