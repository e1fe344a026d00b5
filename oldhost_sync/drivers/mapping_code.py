"""Code that makes the bodies of a rule: a function that an installed package offers as an entry point.

A mapping names the entry point, never a module: it is read from the database, also in an application's process, and
must not be able to name what nobody has installed for this. The function gets a change and gives its body, always the
same for the same change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "oldhost_sync.mappings"

# Of a `ChangeContent`.
Encode = Callable[[Any], bytes]


# Entry points that were needed in this process, and are not here.
missed: set[str] = set()


@cache
def find(name: str) -> tuple[Encode, str] | str:
    """The function, and its package's name and version; or why there is none in this process."""
    found = _loaded(_offered().get(name, ()))
    if isinstance(found, str):
        missed.add(name)
    return found


def _loaded(offered: Sequence[EntryPoint]) -> tuple[Encode, str] | str:
    if len(offered) != 1:
        return "several packages here have it" if offered else "no package here has it"
    try:
        function = offered[0].load()
    except Exception as error:  # noqa: BLE001 - it is another package's, and says what it likes
        return f"it can't be loaded here ({type(error).__name__})"
    if not callable(function):
        return "it is no function"
    package = offered[0].dist
    return function, f"{package.name} {package.version}" if package else ""


@cache
def _offered() -> dict[str, list[EntryPoint]]:
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    found = defaultdict(list)
    for each in entry_points(group=GROUP):
        found[each.name].append(each)
    return found
