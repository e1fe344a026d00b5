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
        missing = [name for name in NAMES if name not in await _registered(client)]
        if missing:
            wanted = dict.fromkeys(missing, KEYWORD)
            request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wanted)
            await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        logger.info("Temporal's list will not show the writers' states (%s); see docs/operations.md", error.message)
        return False
    return True


class Registration:
    """Whether the writers may set the attributes; checked regularly, because they may be added or removed."""

    def __init__(self) -> None:
        self.is_known = False

    async def watch(self, client: Client) -> None:
        """Check until cancelled. The attributes are known after two looks in a row have found them."""
        found = False
        while True:
            before, found = found, await self._look(client)
            self.is_known = before and found
            await asyncio.sleep(LOOK_SECONDS)

    @staticmethod
    async def _look(client: Client) -> bool:
        try:
            return set(NAMES) <= set(await _registered(client))
        except RPCError:
            return False


async def _registered(client: Client) -> list[str]:
    """The Keyword attributes of the namespace."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    answer = await client.operator_service.list_search_attributes(request)
    return [name for name, kind in answer.custom_attributes.items() if kind == KEYWORD]
