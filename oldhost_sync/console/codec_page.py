"""Decrypts what Temporal stores, for Temporal's UI: the browser asks here, with the cookie of the signed-in operator.

Only the UI's own origin is answered (:class:`ConsoleDoor`), and only operators, as a payload may contain what an
application signalled. The audit records each request. It is the protocol of the UI's "codec endpoint".
"""

from __future__ import annotations

import asyncio

from google.protobuf.json_format import MessageToJson, Parse, ParseError
from starlette.requests import Request
from starlette.responses import Response
from temporalio.api.common.v1 import Payloads

from oldhost_sync.api.access import OPERATORS, caller_of
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.requests import read_bytes
from oldhost_sync.console.door import DECODE, decoder_headers
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.store.audit import record_act
from oldhost_sync.temporal.client import CompressThenEncrypt
from oldhost_sync.temporal.payload_encryption import KeyMissing

# A page of history: Temporal takes payloads of 2 MiB at most, which grow by a third here.
BODY_BYTES_MAX = 8 * 1024 * 1024
DECODED = "decode-payloads"


class CodecPage(Page):
    def mount(self, add: Adder) -> None:
        add("POST", DECODE, self.decode, OPERATORS)

    async def decode(self, request: Request) -> Response:
        body = await read_bytes(request, BODY_BYTES_MAX)
        try:
            payloads = await asyncio.to_thread(_decoded, body, CompressThenEncrypt(self.console.temporal_keys))
        except (ParseError, UnicodeDecodeError):
            raise _refused("The body is not a list of payloads.", "This address is for Temporal's UI.") from None
        except KeyMissing as missing:
            raise _refused(f"{missing}.", "Add the key to the API's settings.") from None
        operator, host = caller_of(request).operator, self.console.dependencies.host
        detail = {"payloads": len(payloads.payloads)}
        await self.console.dependencies.database.run(
            lambda connection: record_act(
                connection, host=host, action=DECODED, operator=operator, reason="", detail=detail
            )
        )
        shown = await asyncio.to_thread(MessageToJson, payloads)
        return Response(shown, media_type="application/json", headers=decoder_headers(request))


def _decoded(body: bytes, codec: CompressThenEncrypt) -> Payloads:
    """May take a second for a large body, so it is done in a thread of its own."""
    encoded = Parse(body.decode(), Payloads())
    return Payloads(payloads=asyncio.run(codec.decode(list(encoded.payloads))))


def _refused(detail: str, action: str) -> Problem:
    return Problem(422, "not-decoded", "The payloads can't be decoded", detail, action)
