"""A host that speaks an API of its own: PUT /v2/units/{id}/{what}/{number}, signed, with answers of its own form.

Written from the API below alone, which is all that the product's settings say of it, too.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.foreign_host.answer import Answer, Effect
from tests.foreign_host.host import ForeignHost, Request

KEY = b"a-key-of-forty-characters-for-the-tests!"
BASE = "/v2"

# The host's side of it: as an operator writes it into the hosts file, and the mapping's file.
OPTIONS = """
number = { in = "path" }
question = "/units/next"
date = { header = "X-Time" }
sign = { over = ["method", "path", "date", "body"], header = "X-Signature", prefix = "sha256=" }
rejection_uses = "yes"
repeated = "punished"
answers = [
    { is = "applied", status = 200, where = { "/ok" = true }, number = "/seq" },
    { is = "rejected", status = 422, reason = "/why" },
    { is = "gap", status = 409, where = { "/code" = "AHEAD" }, expected = "/next" },
    { is = "replay", status = 409, where = { "/code" = "SEEN" }, expected = "/next", seconds = "/wait" },
    { is = "banned", status = 423, seconds = "/wait" },
    { is = "busy", status = 503, seconds = "/wait" },
    { is = "expected", status = 200, where = { "/ok" = true }, expected = "/next" },
]
"""
MAPPING = """
name = "units"
[rules.unit_status_changed]
method = "PUT"
path = "/units/{/entity_id}/status/{number}"
fields = { status = "/payload/status", ref = "/change_id" }
[rules."*"]
path = "/units/{/entity_id}/events"
fields = { kind = "/event_type", ref = "/change_id" }
"""


def written(folder: Path) -> tuple[Path, Path]:
    """The files of the mapping and of the key."""
    (folder / "units.toml").write_text(MAPPING)
    (folder / "sign.key").write_bytes(KEY + b"\n")
    return folder / "units.toml", folder / "sign.key"


def table(name: str, url: str, more: str = "") -> str:
    """The host's table in a hosts file beside `written`'s files. `more`: further lines."""
    return f"""
[hosts.{name}]
url = "{url}"
mapping_file = "units.toml"
sign_key_file = "sign.key"
{more}
[hosts.{name}.options]
{OPTIONS}"""


@dataclass
class UnitsHost(ForeignHost):
    """`states`: of the units, as it took them. `unsigned`: requests that were not signed as they had to be."""

    base: str = BASE
    states: dict[str, str] = field(default_factory=dict)
    unsigned: int = 0

    def by_the_protocol(self, request: Request) -> Answer:
        with self._lock:
            if not self._is_signed(request):
                self.unsigned += 1
                return Answer(401, {"ok": False, "code": "SIGNATURE"})
            if (request.method, request.target) == ("GET", f"{BASE}/units/next"):
                return Answer(200, {"ok": True, "next": self.expected if self.says is None else self.says})
            number = request.nonce
            if number is None:
                return Answer(404, {"ok": False, "code": "NO_NUMBER"})
            if time.monotonic() < self.banned_until:
                return Answer(423, {"ok": False, "wait": 2})
            if number > self.expected:
                self.gaps += 1
                return Answer(409, {"ok": False, "code": "AHEAD", "next": self.expected})
            if number < self.expected:
                self.replays += 1
                return Answer(409, {"ok": False, "code": "SEEN", "next": self.expected, "wait": 2})
            return Answer(200, {"ok": True, "seq": number}, effect=Effect.APPLIES)

    def _carry_out(self, request: Request, effect: Effect) -> None:
        super()._carry_out(request, effect)
        if effect is Effect.APPLIES and request.target.startswith(f"{BASE}/units/"):
            self.states[request.target.split("/")[3]] = json.loads(request.body).get("status", "")

    def _is_signed(self, request: Request) -> bool:
        date = request.headers.get("x-time", "0")
        signed = b"\n".join([request.method.encode(), request.target.encode(), date.encode(), request.body])
        made = f"sha256={hmac.new(KEY, signed, hashlib.sha256).hexdigest()}"
        return request.headers.get("x-signature") == made and abs(time.time() - int(date)) < 300
