"""docs/drivers.md: its code fits the contract."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module

from oldhost_sync.drivers import events
from oldhost_sync.drivers.contract import LOCAL, Wire
from tests.architecture.project_files import ROOT

PAGE = (ROOT / "docs" / "drivers.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_what_its_code_imports_from_the_product_exists() -> None:
    imports = [node for block in BLOCKS for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").startswith("oldhost_sync")]
    assert ours
    for node in ours:
        module = import_module(node.module or "")
        assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_its_driver_is_as_the_contract_has_it() -> None:
    found: dict[str, object] = {}
    exec(BLOCKS[0], found)
    wire = found["make_driver"]({}).wire(LOCAL)  # type: ignore[operator]
    for name, method in inspect.getmembers(Wire, inspect.isfunction):
        if not name.startswith("_"):
            assert [*inspect.signature(method).parameters][1:] == [*inspect.signature(getattr(wire, name)).parameters]
    assert wire.said is None


def test_each_event_that_it_names_exists() -> None:
    table = PAGE[PAGE.index("### Which event") : PAGE.index("## 4.")]
    assert [name for name in re.findall(r"`([A-Z]\w+)\(", table) if not hasattr(events, name)] == []
