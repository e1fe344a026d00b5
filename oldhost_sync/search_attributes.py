"""The search attributes of the writer (`SyncHost`, `SyncState`): registering them, and whether they are registered."""

from __future__ import annotations

import asyncio
import logging

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from workflows.state_list import HOST, STATE

logger = logging.getLogger(__name__)

NAMES = (HOST.name, STATE.name)
KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
# Longer than Temporal's services cache a namespace: attributes found by two looks in a row can be used by the writer.
LOOK_SECONDS = 60.0


async def register(client: Client) -> bool:
    """Add those of NAMES that the namespace lacks. False if not allowed; then the writers' states are not listed."""
    try:
        await _add_missing(client)
    except RPCError as error:
        logger.info("Temporal's list will not show the writers' states (%s); see docs/operations.md", error.message)
        return False
    return True


class Registration:
    """Whether the writers may set the attributes. Checked regularly: they may be added or removed, and are missing in a
    namespace that was restored. A writer that has set them can do nothing without them, as its workflow task fails, so
    they are added again wherever that is allowed.
    """

    def __init__(self) -> None:
        self.is_known = False

    async def watch(self, client: Client) -> None:
        """Check until cancelled. The attributes are known after two looks in a row have found or added them."""
        found = False
        while True:
            before, found = found, await self._look(client)
            self.is_known = before and found
            await asyncio.sleep(LOOK_SECONDS)

    @staticmethod
    async def _look(client: Client) -> bool:
        try:
            await _add_missing(client)
        except RPCError:
            return False
        return True


async def _add_missing(client: Client) -> None:
    registered = await _registered(client)
    missing = [name for name in NAMES if name not in registered]
    if missing:
        request = AddSearchAttributesRequest(
            namespace=client.namespace, search_attributes=dict.fromkeys(missing, KEYWORD)
        )
        await client.operator_service.add_search_attributes(request)


async def _registered(client: Client) -> list[str]:
    """The Keyword attributes of the namespace."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    answer = await client.operator_service.list_search_attributes(request)
    return [name for name, kind in answer.custom_attributes.items() if kind == KEYWORD]
