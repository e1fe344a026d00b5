"""What a workflow's history really holds: its JSON form shows payloads in base64, and large ones are compressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHistory


def holds(history: WorkflowHistory, text: str) -> bool:
    """Whether `text` stands anywhere in it as it is."""
    wanted = text.encode()
    return any(wanted in content for event in history.events for content in _contents(event))


def _contents(message: Message) -> Iterator[bytes]:
    """The message's own bytes, and what its compressed payloads hold."""
    yield message.SerializeToString()
    for part in _parts(message):
        if isinstance(part, Payload) and part.metadata.get("encoding") == b"binary/zlib":
            yield zlib.decompress(part.data)
        else:
            yield from _contents(part)


def _parts(message: Message) -> Iterator[Message]:
    for _, value in message.ListFields():
        values = value.values() if hasattr(value, "values") else value if hasattr(value, "append") else (value,)
        yield from (part for part in values if isinstance(part, Message))
