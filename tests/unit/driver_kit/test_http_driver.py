"""The kit's tests on the product's own driver, with the exchanges of docs/protocol.md."""

from __future__ import annotations

from oldhost_sync.driver_kit.driver_tests import DriverTests
from oldhost_sync.driver_kit.sample import AskExpected, Operation, Request, Sample
from oldhost_sync.drivers.events import (
    Applied,
    Banned,
    Busy,
    Closing,
    ConnectionEnd,
    ConnectionInUse,
    Event,
    Expected,
    Gap,
    Malformed,
    OutOfRange,
    Rejected,
    Replay,
    Unlisted,
)
from oldhost_sync.drivers.http.driver import HTTP

BODY = b'{"unit_id":"u1","status":"Clean"}'
OPERATION = Operation(501, BODY)
WRITTEN = (
    b"POST /oldhost/sync HTTP/1.1\r\nHost: oldhost\r\nX-Nonce: 501\r\nContent-Type: application/json\r\n"
    b"Content-Length: 33\r\n\r\n" + BODY
)
ASKED = (
    b"GET /oldhost/expected-nonce HTTP/1.1\r\nHost: oldhost\r\nAccept: application/json\r\n"
    b"Cache-Control: no-cache\r\n\r\n"
)


def sample(name: str, request: Request, head: str, body: str, *events: Event, names_number: bool = True) -> Sample:
    written = WRITTEN if isinstance(request, Operation) else ASKED
    answer = f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    return Sample(name, request, written, answer, events, names_number=names_number)


CLOSES = Closing(ConnectionEnd.ANNOUNCED)
TO_THE_END = Sample(
    "applied, up to the end of the connection", OPERATION, WRITTEN,
    b'HTTP/1.1 200 OK\r\n\r\n{"nonce":501,"expected_nonce":502}',
    (Applied(502), Closing(ConnectionEnd.WITH_ANSWER)), ends=True,
)  # fmt: skip
CHUNKED = Sample(
    "applied, in chunks", OPERATION, WRITTEN,
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n{"nonce":501}\r\n0\r\n\r\n', (Applied(None),),
)  # fmt: skip


class TestHttpDriver(DriverTests):
    check_sum = False
    driver = HTTP
    samples = (
        sample("applied", OPERATION, "200 OK", '{"nonce":501,"expected_nonce":502}', Applied(502)),
        TO_THE_END,
        CHUNKED,
        sample(
            "rejected", OPERATION, "422 Unprocessable Content",
            '{"error":"rejected","reason":"no","expected_nonce":502}', Rejected("no", consumed=True),
            names_number=False,
        ),
        sample("gap", OPERATION, "400 Bad Request", '{"error":"nonce_gap","expected_nonce":499}', Gap(499)),
        sample(
            "replay", OPERATION, "400 Bad Request",
            '{"error":"nonce_replay","expected_nonce":505,"retry_after":900}', Replay(505, 900.0),
        ),
        sample("malformed", OPERATION, "400 Bad Request", '{"error":"malformed","reason":"no id"}', Malformed("no id")),
        sample("banned", OPERATION, "403 Forbidden", '{"error":"banned","retry_after":30}', Banned(30.0)),
        sample("busy", OPERATION, "503 Service Unavailable", '{"error":"busy","retry_after":1}', Busy(1.0)),
        sample(
            "in use", OPERATION, "503 Service Unavailable\r\nConnection: close", '{"error":"connection_in_use"}',
            ConnectionInUse(), CLOSES,
        ),
        sample(
            "not in the protocol", OPERATION, "409 Conflict", '{"error":"merged"}',
            Unlisted("status 409, not in the protocol"),
        ),
        sample("expected", AskExpected(), "200 OK", '{"expected_nonce":501}', Expected(501)),
        sample("expects too much", AskExpected(), "200 OK", '{"expected_nonce":-7}', OutOfRange("-7")),
        sample("asked while banned", AskExpected(), "403 Forbidden", '{"error":"banned"}', Banned(None)),
    )  # fmt: skip
