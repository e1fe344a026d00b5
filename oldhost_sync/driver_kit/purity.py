"""Whether a driver's source is pure: it names no module that does IO, keeps time or makes chance, and calls nothing of
the language that does.

Libraries are trusted: a parser may import what it likes. So the driver's own modules are read, not run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path

IMPURE = frozenset({
    "aiohttp", "asyncio", "concurrent", "ftplib", "http.client", "httpx", "logging", "multiprocessing", "os",
    "pathlib", "pymysql", "queue", "random", "requests", "sched", "secrets", "select", "selectors", "shutil", "signal",
    "smtplib", "socket", "socketserver", "sqlalchemy", "sqlite3", "ssl", "subprocess", "temporalio", "tempfile",
    "threading", "time", "urllib.request", "urllib3", "uuid",
})  # fmt: skip
# What a driver may see of the product.
OURS = ("oldhost_sync.drivers", "oldhost_sync.policy.limits")
_FUNCTIONS = frozenset({"__import__", "eval", "exec", "input", "open", "print"})
_CLOCKS = frozenset({"now", "today", "utcnow"})


def impurities(module: str) -> list[str]:
    """What is impure in the module and in those of its own package that it imports: each with its file and line."""
    root = "oldhost_sync.drivers" if module.startswith("oldhost_sync.") else module.partition(".")[0]
    found: list[str] = []
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _source_of(name)
        if name in seen or path is None:
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.name}, line {getattr(node, 'lineno', 0)}"
            for imported in _imports(node, name, is_package=path.name == "__init__.py"):
                if _within(imported, (root,)):
                    waiting.append(imported)
                elif _is_impure(imported):
                    found.append(f"{where}: imports {imported}")
            if call := _impure_call(node):
                found.append(f"{where}: calls {call}")
    return found


def _source_of(name: str) -> Path | None:
    """None: it is no module, but a name in one."""
    try:
        module = sys.modules.get(name) or import_module(name)
    except ModuleNotFoundError:
        return None
    file = getattr(module, "__file__", None)
    return Path(file) if file and file.endswith(".py") else None


def _imports(node: ast.AST, module: str, *, is_package: bool) -> Iterator[str]:
    """The full names that a statement imports; those of `from` may be modules, too."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = module if is_package else module.rpartition(".")[0]
        base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _is_impure(imported: str) -> bool:
    return _within(imported, IMPURE) or (_within(imported, ("oldhost_sync",)) and not _may_be_ours(imported))


def _may_be_ours(imported: str) -> bool:
    """What is allowed, or a package on the way to it."""
    return _within(imported, OURS) or any(allowed.startswith(f"{imported}.") for allowed in OURS)


def _within(name: str, packages: tuple[str, ...] | frozenset[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _impure_call(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
            return name
        case ast.Call(func=ast.Attribute(attr=name)) if name in _CLOCKS:
            return name
    return ""
