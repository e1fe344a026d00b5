"""One table of changes as they may arrive, right and wrong, for every door: what is taken, and a refusal's words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from oldhost_sync.policy.limits import ID_LENGTH_MAX, KEY_LENGTH_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX

# An emergency, as `apply_now` takes no other.
EVENT = "guest_locked_out"


@dataclass(frozen=True, slots=True)
class Form:
    """A change as it arrives. `says`: the whole text of its refusal, None when it is taken."""

    name: str
    text: bytes
    says: str | None = None

    @property
    def is_object(self) -> bool:
        """Whether a Python program can have it as one mapping: it says everything that the text says."""
        try:
            value = json.loads(self.text, object_pairs_hook=_pairs, parse_constant=_constant)
        except (ValueError, RecursionError):
            return False
        return isinstance(value, dict)

    @property
    def value(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.text)
        return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def _constant(name: str) -> float:
    raise ValueError(name)


def differing(forms: list[Form], said: dict[str, str | None]) -> dict[str, tuple[str | None, str | None]]:
    """What was said of each form that was not treated as the table says: expected, and found."""
    return {form.name: (form.says, said[form.name]) for form in forms if not _agrees(form.says, said[form.name])}


def _agrees(says: str | None, said: str | None) -> bool:
    """Where exactly a text is no JSON is said by Python, in words of its version."""
    return said.startswith(says) if says and said and says.endswith(": ") else says == said


def change(**fields: str) -> bytes:
    """A good change; `fields` replace or add some, as JSON text."""
    made = {"entity_type": '"unit"', "entity_id": '"U-1"', "event_type": f'"{EVENT}"', "payload": "{}"} | fields
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in made.items() if text) + "}").encode()


def nested(levels: int) -> str:
    """`levels`: of all, the payload's own included."""
    return '{"x": ' * levels + "1" + "}" * levels


def of_size(size: int) -> str:
    return '{"x":"' + "y" * (size - len('{"x":""}')) + '"}'


TIME = "{field} must be a time with a time zone (RFC 3339), such as 2026-05-01T12:00:00Z"
YEARS = "{field} must be in a year from 1970 to 9998"
MOMENTS = [
    "2026-05-01T12:00:00Z",
    "2026-05-01T12:00:00+02:00",
    "2026-05-01T12:00:00-00:00",
    "2026-05-01T12:00:00.5Z",
    "2026-05-01T12:00:00.123456789-23:59",
    "1970-01-01T00:00:00Z",
    "9998-12-31T23:59:59.999999Z",
]
NO_MOMENTS = [
    "",
    "yesterday",
    "2026-05-01",
    "2026-05-01T12:00Z",
    "2026-05-01T12:00:00",
    "2026-05-01 12:00:00Z",
    "2026-05-01t12:00:00z",
    "20260501T120000Z",
    "2026-W18-5T12:00:00Z",
    "2026-121T12:00:00Z",
    "2026-05-01T12:00:00+0200",
    "2026-05-01T12:00:00+02",
    "2026-05-01T12:00:00+24:00",
    "2026-05-01T12:00:00,5Z",
    "2026-05-01T12:00:00.Z",
    "2026-05-01T24:00:00Z",
    "2026-05-01T23:59:60Z",
    "2026-02-30T12:00:00Z",
    "2026-13-01T12:00:00Z",
    " 2026-05-01T12:00:00Z",
    "2026-05-01T12:00:00Z\n",
    "٢٠٢٦-05-01T12:00:00Z",
    "10000-01-01T00:00:00Z",
    "1777636800",
    "1777636800.5",
    "1777636800000",
]
OUTSIDE_MOMENTS = [
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "1969-12-31T23:59:59Z",
    "1970-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-23:59",
    "9998-12-31T23:59:59-00:01",
]
NOT_TEXT = ("1777636800", "true", "[]")
NUMBERS = (
    "9223372036854775807", "-9223372036854775808", "1e308", "5e-324", "-0.0", "0.1", "1E2", "true", "null",
)  # fmt: skip
LONG_ID = json.dumps("x" * (ID_LENGTH_MAX + 1))
WHOLE = "payload has a whole number beyond 64 bit: send it as text"
UNICODE = "payload has text that is not valid Unicode (a lone surrogate)"
TWICE = "it has a name twice in one object: send each name once"
NAME = "{field} must be 1 to 64 of the characters A-Z a-z 0-9 _ . - and not begin with -"
ID = f"entity_id must be 1 to {ID_LENGTH_MAX} printable characters"
KEY = f"idempotency_key must be 1 to {KEY_LENGTH_MAX} visible ASCII characters without spaces"
NO_PAYLOAD = "payload must be a JSON object"
NO_OBJECT = "a change must be a JSON object"
FIELDS = "entity_type, entity_id, event_type, payload, idempotency_key, occurred_at, not_before, traceparent"


def times(field: str) -> list[Form]:
    wrong = [(text, TIME) for text in NO_MOMENTS] + [(text, YEARS) for text in OUTSIDE_MOMENTS]
    return [
        *(
            Form(f"{field} {text!r}", change(**{field: json.dumps(text)}), says.format(field=field))
            for text, says in wrong
        ),
        *(
            Form(f"{field} {raw}", change(**{field: raw}), TIME.format(field=field))
            for raw in ("1777636800", "true", "[]")
        ),
    ]


TAKEN = [
    Form("plain", change()),
    Form("nulls", change(idempotency_key="null", occurred_at="null", not_before="null")),
    *(Form(f"occurred_at {text}", change(occurred_at=json.dumps(text))) for text in MOMENTS),
    Form("not_before in the past", change(not_before='"2026-05-01T12:00:00.123456789+02:00"')),
    *(
        Form(f"number {raw}", change(payload=f'{{"x": {raw}}}'))
        for raw in (
            "9223372036854775807",
            "-9223372036854775808",
            "1e308",
            "5e-324",
            "-0.0",
            "0.1",
            "1E2",
            "true",
            "null",
        )
    ),
    *(
        Form(f"text {raw}", change(payload=f'{{"x": {raw}}}'))
        for raw in (r'"\u0000"', r'"\ud83c\udfe0"', '"Zoë 🏠"', r'"\u2028\u202e\u001b[2J"', '""')
    ),
    Form("names", change(payload=r'{"": 1, "\u0000": 2, "a.b$[0]": {"": [{}, [], ""]}}')),
    Form("deepest", change(payload=nested(PAYLOAD_DEPTH_MAX))),
    Form("largest", change(payload=of_size(PAYLOAD_BYTES_MAX))),
    Form("longest id", change(entity_id=json.dumps("ü" * ID_LENGTH_MAX))),
    Form("odd id", change(entity_id='"a/b c%2F🏠?"')),
    *(
        Form(f"event type {name}", change(event_type=f'"{name}"', entity_type='"x"'))
        for name in (".", "_-", "0", "a-.")
    ),
    Form("longest name", change(entity_type=json.dumps("t" * 64))),
    Form("longest key", change(idempotency_key=json.dumps("~!" * (KEY_LENGTH_MAX // 2)))),
    Form("a unit's status", change(event_type='"unit_status_changed"', payload='{"status": "Zoë\u00a0🏠"}')),
    Form("a status that is no text", change(event_type='"unit_status_changed"', payload='{"status": 7}')),
]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# As it arrives, and what is kept of it.
TRACEPARENTS: dict[Any, str | None] = {
    TRACEPARENT: TRACEPARENT,
    f"{TRACEPARENT[:-1]}0": f"{TRACEPARENT[:-1]}0",
    f"cc{TRACEPARENT[2:]}": TRACEPARENT,
    f"cc{TRACEPARENT[2:]}-what-the-future-will-be-like": TRACEPARENT,
    f"cc{TRACEPARENT[2:]}what-the-future-will-be-like": None,
    f"ff{TRACEPARENT[2:]}": None,
    f"{TRACEPARENT}-more": None,
    f"{TRACEPARENT}\x00": None,
    f"{TRACEPARENT}\n": None,
    f" {TRACEPARENT}": None,
    f"\n{TRACEPARENT}": None,
    TRACEPARENT.upper(): None,
    TRACEPARENT[:-1]: None,
    TRACEPARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32): None,
    TRACEPARENT.replace("b7ad6b7169203331", "0" * 16): None,
    "": None,
    "x" * 5000: None,
    7: None,
    True: None,
    (): None,
}
TAKEN += [
    Form(f"traceparent {given!r:.80}", change(traceparent=json.dumps(given, ensure_ascii=False)))
    for given in [*TRACEPARENTS, {"x": [TRACEPARENT]}, "Zoë 🏠"]
]
_DETAILS = {"event_type": '"unit_details_changed"'}
REFUSED = [
    *times("occurred_at"),
    *times("not_before"),
    Form("not_before too far", change(not_before='"9998-12-31T23:59:59Z"'), "not_before is more than 1100 days ahead"),
    *(
        Form(f"number {raw[:30]}", change(payload=f'{{"x": [{raw}]}}'), WHOLE)
        for raw in ("9223372036854775808", "-9223372036854775809", "1" + "0" * 400)
    ),
    Form("number of 5000 digits", change(payload=f'{{"x": {"9" * 5000}}}'), WHOLE.replace("payload", "it")),
    Form("number beyond a double", change(payload='{"x": 1e999}'), "payload has a number that no double holds"),
    *(
        Form(f"number {raw}", change(payload=f'{{"x": {raw}}}'), f"it has {raw}, which is not JSON")
        for raw in ("NaN", "Infinity", "-Infinity")
    ),
    Form("field twice", change()[:-1] + b', "payload": {"other": 1}}', TWICE),
    Form("name twice", change(payload='{"x": 1, "x": 1}'), TWICE),
    Form("name twice, deep", change(payload=r'{"x": [[{"y": {"z": 1, "\u007a": 2}}]]}'), TWICE),
    Form("half a character", change(payload=r'{"x": "\ud800"}'), UNICODE),
    Form("half a character, deep", change(payload=r'{"x": [{"y": "a\udfffb"}]}'), UNICODE),
    Form("half a character as a name", change(payload=r'{"\ud800": 1}'), "payload has a field whose name is not text"),
    Form("too deep", change(payload=nested(PAYLOAD_DEPTH_MAX + 1)), "payload nests deeper than 16 levels"),
    Form("far too deep", change(payload=nested(100)), "payload nests deeper than 16 levels"),
    Form(
        "too large", change(payload=of_size(PAYLOAD_BYTES_MAX + 1)),
        "payload is 30721 bytes of JSON; at most 30720 are accepted",
    ),
    Form(
        "too large when escaped", change(payload=json.dumps({"x": "ü" * 6000}, ensure_ascii=False)),
        "payload is 36008 bytes of JSON; at most 30720 are accepted",
    ),
    *(Form(f"payload {raw}", change(payload=raw), NO_PAYLOAD) for raw in ("[]", '"{}"', "7", "false")),
    *(
        Form(f"{field} {raw[:20]}", change(**{field: raw}), NAME.format(field=field))
        for field in ("entity_type", "event_type")
        for raw in ('""', '"a b"', '"ü"', '"a\\n"', json.dumps("x" * 65), "7", "[]", '"a\\u0000"', '"-a"')
    ),
    *(
        Form(f"entity_id {raw[:20]}", change(entity_id=raw), ID)
        for raw in ('""', LONG_ID, '"a\\u0000"', '"a\\nb"', '"\\ud800"', '"\\u202e"', "7", "{}")
    ),
    *(
        Form(f"idempotency_key {raw[:20]}", change(idempotency_key=raw), KEY)
        for raw in ('""', '"a b"', '"ü"', '"a\\n"', json.dumps("x" * (KEY_LENGTH_MAX + 1)), "7", "true")
    ),
    *(Form(f"without {name}", change(**{name: ""}), f"the change lacks {name}") for name in ("entity_id", "payload")),
    Form("null for a field", change(payload="null", entity_id="null"), "the change lacks entity_id, payload"),
    Form("unknown field", change(color='"red"'), f"the change has unknown fields: color; known are {FIELDS}"),
    Form(
        "unknown field of control characters", change()[:-1] + rb', "\u001b[2J\ud800": 1}',
        rf"the change has unknown fields: \x1b[2J\ud800; known are {FIELDS}",
    ),
    *(Form(f"no object: {raw}", raw.encode(), NO_OBJECT) for raw in ("[]", '"text"', "7", "null", "true")),
    Form(
        "a status too long", change(event_type='"unit_status_changed"', payload=json.dumps({"status": "x" * 65})),
        "payload.status must be 1 to 64 characters without control characters",
    ),
    Form(
        "an empty status", change(event_type='"unit_status_changed"', payload='{"status": ""}'),
        "payload.status must be 1 to 64 characters without control characters",
    ),
    Form(
        "a name of control characters", change(**_DETAILS, payload=r'{"name": "a\u0000b"}'),
        "payload.name must be 1 to 255 characters without control characters",
    ),
    Form(
        "a property of control characters", change(**_DETAILS, payload=r'{"name": "a", "property_id": "a\nb"}'),
        f"payload.property_id must be 1 to {ID_LENGTH_MAX} printable characters",
    ),
]  # fmt: skip
# What is no JSON text has no batch around it.
NO_JSON = [
    Form("not UTF-8", change(entity_id='"a"')[:-1] + b', "x": "\xff"}', "it is not UTF-8"),
    Form("UTF-16", change().decode().encode("utf-16"), "it is not UTF-8"),
    Form("cut", change()[:-1], "it is not JSON: "),
    Form("a comma too many", b'{"entity_type": "unit",}', "it is not JSON: "),
    Form("more after it", change() + b" x", "it is not JSON: "),
    Form("a raw control character", change(entity_id='"a\tb"'), "it is not JSON: "),
    Form("hexadecimal", change(payload='{"x": 0x10}'), "it is not JSON: "),
    Form("leading zero", change(payload='{"x": 010}'), "it is not JSON: "),
]  # fmt: skip
