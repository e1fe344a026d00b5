"""Forms as browsers post them: bounded, and each field once."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from oldhost_sync.api.problems import Problem

# A reason of 1,024 characters, each up to nine bytes when escaped, and a payload.
FORM_BYTES_MAX = 128 * 1024
FORM_FIELDS_MAX = 600
MEDIA_TYPE = "application/x-www-form-urlencoded"


async def read_form(request: Request) -> list[tuple[str, str]]:
    """The fields in order; a name may occur more than once. Raises a Problem: 400, 413, 415."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != MEDIA_TYPE:
        raise _unreadable(415, f"The Content-Type is not {MEDIA_TYPE}.")
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                raise _unreadable(413, f"It is larger than {FORM_BYTES_MAX} bytes.")
    except ClientDisconnect:
        raise _unreadable(400, "The connection ended before the form did.") from None
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FORM_FIELDS_MAX)
    except ValueError:
        raise _unreadable(400, "It is not encoded as a form, or has too many fields.") from None


async def read_fields(request: Request, *names: str) -> dict[str, str]:
    """The form's fields, stripped; empty ones are left out. Raises a Problem for another or a repeated name."""
    fields = await read_form(request)
    given = [name for name, _ in fields]
    if len(set(given)) < len(given) or not set(given) <= set(names):
        raise _unreadable(400, f"Its fields are not {', '.join(names)}, each once.")
    return {name: value.strip() for name, value in fields if value.strip()}


def _unreadable(status: int, detail: str) -> Problem:
    return Problem(status, "bad-form", "The form can't be read", detail, "Go back, reload the page, and try again.")
