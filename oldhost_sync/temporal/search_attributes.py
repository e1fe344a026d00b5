"""The search attributes of the writer (`SyncHost`, `SyncState`): registering them, and whether they are registered."""

from __future__ import annotations

import asyncio
import logging

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from workflows.status_report import HOST, STATE

logger = logging.getLogger(__name__)

NAMES = (HOST.name, STATE.name)
KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
# Longer than Temporal's services cache a namespace: attributes found by two looks in a row can be used by the writer.
POLL_SECONDS = 60.0


async def register(client: Client) -> bool:
    """Add those of NAMES that the namespace lacks. False if not allowed; then the writers' states are not listed."""
    try:
        await _add_missing(client)
    except (RPCError, WrongType) as error:
        logger.info("Temporal's list will not show the writers' states (%s); see docs/operations.md", error)
        return False
    return True


class WrongType(Exception):  # noqa: N818 - says what is wrong
    """The server would accept the attribute's name and then fail the task of each writer that sets it."""


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
            await asyncio.sleep(POLL_SECONDS)

    @staticmethod
    async def _look(client: Client) -> bool:
        try:
            await _add_missing(client)
        except (RPCError, WrongType):
            return False
        return True


async def _add_missing(client: Client) -> None:
    """Raises RPCError if not allowed, WrongType for an attribute that exists with another type."""
    found = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    known = dict(found.custom_attributes.items())
    if wrong := [name for name in NAMES if known.get(name, KEYWORD) != KEYWORD]:
        raise WrongType(f"{', '.join(wrong)} must have the type Keyword: remove and add it again")
    if missing := dict.fromkeys((name for name in NAMES if name not in known), KEYWORD):
        request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
        await client.operator_service.add_search_attributes(request)
