"""The writer's host and state as search attributes: one list in Temporal's UI shows which of fifty writers are halted.

If a workflow sets an attribute that is not registered in its namespace, Temporal fails the task, again and again. So
the writer sets them only after a worker has reported that they are registered
(`oldhost_sync/temporal/search_attributes.py`).
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import SearchAttributeKey

HOST = SearchAttributeKey.for_keyword("SyncHost")
STATE = SearchAttributeKey.for_keyword("SyncState")


class StateList:
    """What the list shows of this writer; a run starts with what the previous one has shown."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._shown = workflow.info().typed_search_attributes.get(STATE)
        self._is_registered = self._shown is not None
        self._logged = self._shown

    def heard(self, is_registered: bool | None) -> None:
        """Take what a worker reported; None: it does not know."""
        if is_registered is not None:
            self._is_registered = is_registered

    def show(self, state: str) -> None:
        if state != self._logged:
            workflow.logger.info("the writer is %s", state, extra={"host": self._host, "state": state})
            self._logged = state
        if self._is_registered and state != self._shown:
            workflow.upsert_search_attributes([HOST.value_set(self._host), STATE.value_set(state)])
            self._shown = state
