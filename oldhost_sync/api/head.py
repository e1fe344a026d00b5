"""HEAD: what GET would answer, without the content (RFC 9110, 9.3.2), on every path that has GET."""

from __future__ import annotations

from starlette.types import Message, Receive, Scope, Send


def as_get(scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
    """The request as a GET whose answer ends with its header; a stream is told that its reader is gone."""
    ended = False

    async def send_header(message: Message) -> None:
        nonlocal ended
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            ended = True
        elif not ended:
            await send(message)

    async def receive_until_ended() -> Message:
        return {"type": "http.disconnect"} if ended else await receive()

    return {**scope, "method": "GET"}, receive_until_ended, send_header
