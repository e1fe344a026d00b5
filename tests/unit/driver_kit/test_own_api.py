"""The kit's tests on the HTTP driver with the options of a host that has an API of its own."""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from typing import ClassVar

from oldhost_sync.driver_kit.driver_tests import DriverTests
from oldhost_sync.driver_kit.sample import AskExpected, Operation, Request, Sample
from oldhost_sync.drivers.contract import Driver, Peer
from oldhost_sync.drivers.events import (
    Applied,
    Banned,
    Busy,
    Event,
    Expected,
    Gap,
    OutOfRange,
    Rejected,
    Replay,
    Unlisted,
)
from oldhost_sync.drivers.http.driver import make_driver
from tests.foreign_host.units_host import KEY, OPTIONS

AT_MS = 1_700_000_000_123
DATE = "1700000000"
BODY = '{"status":"Clean","ref":7}'
PATH = "/v2/units/u1/status/501"


def signed(method: str, path: str, body: str = "") -> str:
    made = hmac.new(KEY, f"{method}\n{path}\n{DATE}\n{body}".encode(), hashlib.sha256).hexdigest()
    return f"X-Time: {DATE}\r\nX-Signature: sha256={made}\r\n"


OPERATION = Operation(501, f"PUT /units/u1/status/{{number}}\n{BODY}".encode(), AT_MS)
WRITTEN = (
    f"PUT {PATH} HTTP/1.1\r\nHost: units.example\r\n{signed('PUT', PATH, BODY)}Content-Type: application/json\r\n"
    f"Content-Length: {len(BODY)}\r\n\r\n{BODY}"
).encode()
ASKED = (
    f"GET /v2/units/next HTTP/1.1\r\nHost: units.example\r\n{signed('GET', '/v2/units/next')}"
    "Accept: application/json\r\nCache-Control: no-cache\r\n\r\n"
).encode()


def sample(name: str, request: Request, status: int, body: str, event: Event, *, names_number: bool = True) -> Sample:
    written = WRITTEN if isinstance(request, Operation) else ASKED
    answer = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    return Sample(name, request, written, answer, (event,), names_number=names_number)


class TestOwnApi(DriverTests):
    check_sum = False
    driver: ClassVar[Driver] = make_driver(tomllib.loads(OPTIONS))
    peer = Peer("units.example", "/v2", sign_key=KEY)
    samples = (
        sample("applied", OPERATION, 200, '{"ok":true,"seq":501}', Applied(None)),
        sample(
            "rejected", OPERATION, 422, '{"ok":false,"why":"no"}', Rejected("no", consumed=True), names_number=False
        ),
        sample("gap", OPERATION, 409, '{"code":"AHEAD","next":499}', Gap(499)),
        sample("replay", OPERATION, 409, '{"code":"SEEN","next":505,"wait":9}', Replay(505, 9.0)),
        sample("banned", OPERATION, 423, '{"wait":30}', Banned(30.0)),
        sample("busy", OPERATION, 503, '{"wait":1}', Busy(1.0)),
        sample("not in its answers", OPERATION, 409, '{"code":"MERGED"}', Unlisted("status 409, in no pattern")),
        sample("expected", AskExpected(AT_MS), 200, '{"ok":true,"next":501}', Expected(501)),
        sample("expects too much", AskExpected(AT_MS), 200, '{"ok":true,"next":-7}', OutOfRange("-7")),
    )
