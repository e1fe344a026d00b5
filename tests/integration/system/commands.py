"""What people and applications type: the command line, `starter.py` and Temporal's own binary, each a process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from oldhost_sync.stack.machine import need_program
from tests.faults.product import ROOT, Product
from workflows.messages import workflow_id

COMMAND_SECONDS_MAX = 40.0


def oldhost_sync(product: Product, *arguments: str, **settings: Any) -> str:
    """What `oldhost-sync …` printed; AssertionError with all it said when it failed."""
    return _run(product, [sys.executable, "-m", "oldhost_sync.cli", *arguments], **settings)


def starter(product: Product) -> str:
    return _run(product, [sys.executable, "starter.py"])


def signal_writer(product: Product, name: str, value: Any) -> None:
    """`temporal workflow signal`, as an application in any language could do it: plain JSON."""
    program = need_program("temporal", install="install the extra `embedded`")
    arguments = ["--address", product.temporal_address, "--workflow-id", workflow_id(product.host)]
    _run(product, [program, "workflow", "signal", *arguments, "--name", name, "--input", json.dumps(value)])


def _run(product: Product, argv: list[str], **settings: Any) -> str:
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env=product.environment(product.settings.model_copy(update=settings)),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{argv[-3:]}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
