"""What the simulation puts into the product in this process, and takes out again: other tests may follow in it."""

from __future__ import annotations

import inspect
import logging
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, get_type_hints
from unittest.mock import patch

from temporalio.converter import _payload_converter as payload_converter

from activities import session as session_activities
from tests.simulation import invariants, network, store

TOO_TALKATIVE = ("temporalio.workflow", "activities.session", "oldhost_sync.relay")
WATCH_SECONDS = 7.0

_installed: ExitStack | None = None


class _QuickInspect:
    """`inspect`, which looks at the same few classes once."""

    getattr_static = staticmethod(lru_cache(maxsize=None)(inspect.getattr_static))

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)


def install() -> None:
    """Virtual twins of the product's waits, a look at each decision, and silence. Once for however many worlds."""
    global _installed  # noqa: PLW0603 - a process has one product
    if _installed is not None:
        return
    _installed = ExitStack()
    for part in (invariants, network, store):
        _installed.callback(part.install())
    _installed.enter_context(patch.object(session_activities, "WATCH_SECONDS", WATCH_SECONDS))
    # Only quicker: the SDK looks up the same few classes' hints for every payload.
    _installed.enter_context(patch.object(payload_converter, "get_type_hints", lru_cache(maxsize=None)(get_type_hints)))
    _installed.enter_context(patch.object(payload_converter, "inspect", _QuickInspect()))
    for name in TOO_TALKATIVE:
        logger = logging.getLogger(name)
        _installed.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)


def uninstall() -> None:
    """The product as it was."""
    global _installed  # noqa: PLW0603 - as above
    if _installed is not None:
        _installed.close()
        _installed = None
