"""Wrong ideas about hosts that refuse, ban, are slow, move, or say yes and no in a form of their own."""

from __future__ import annotations

from tests.mutants.levels import (
    ADDRESSES,
    ANSWER_HEADERS,
    FOREIGN_HOST,
    HALT_DECISIONS,
    HALTED_COUNT,
    MOVED_NAME,
    PACE,
    PROXY,
    REFUSING_HOSTS,
    RESOLVES,
    SECRETS,
    SETTINGS,
    TLS,
)
from tests.mutants.mutant import Mutant, Patch

EXPECTED_NONCE = "oldhost_sync/oldhost/expected_nonce.py"
REFUSALS = "oldhost_sync/oldhost/refusals.py"
WIRE = "oldhost_sync/drivers/http/oldhost.py"
HTTP_WIRE = "oldhost_sync/drivers/http/wire.py"
REFUSAL = "oldhost_sync/drivers/http/refusal.py"
RESPONSE = "oldhost_sync/drivers/http/response.py"
SHARED_CONNECTION = "oldhost_sync/oldhost/shared_connection.py"
INQUIRY = "oldhost_sync/oldhost/inquiry.py"
RECOVERY = "oldhost_sync/oldhost/recovery.py"
CONNECTOR = "oldhost_sync/oldhost/connector.py"
ACCESS = "oldhost_sync/oldhost/access.py"
PROXY_ANSWER = "oldhost_sync/oldhost/proxy.py"
ADDRESS = "oldhost_sync/oldhost/address.py"
LOST_ANSWERS = "oldhost_sync/policy/machine/progress.py"
HALT_RESOLUTION = "oldhost_sync/store/ledger/halt.py"
HALT_COUNT = "oldhost_sync/store/ledger/halt.py"
SESSION = "activities/session.py"

MUTANTS = (
    # ------------------------------------------------------------------------------- yes and no in a form of their own
    Mutant(
        "only 200 is a yes",
        (Patch(WIRE, "HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES", "status == HTTPStatus.OK"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "an empty yes is an apply whatever the count says",
        (Patch(EXPECTED_NONCE, "isinstance(answer, Unlisted) and told == Expected(nonce + 1)", "isinstance(answer, Unlisted)"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a count that moved on by more than ours makes an empty yes an apply",
        (Patch(EXPECTED_NONCE, "told == Expected(nonce + 1)", "isinstance(told, Expected) and told.nonce > nonce"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "an empty yes costs a session",
        (Patch(EXPECTED_NONCE, "empty = isinstance(answer, Unlisted) and", "empty = False and"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "202 says that it is done",
        (Patch(HTTP_WIRE, "HTTPStatus.CREATED, HTTPStatus.NO_CONTENT", "HTTPStatus.CREATED, HTTPStatus.ACCEPTED, HTTPStatus.NO_CONTENT"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a foreign page that says 200 is an empty yes",
        (Patch(HTTP_WIRE, " and not response.body.strip()", ""),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a rejection without a count uses its nonce, whatever the host counts",
        (Patch(EXPECTED_NONCE, "open_ended = isinstance(answer, Rejected) and not answer.is_told", "open_ended = False"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a rejection without a count never uses its nonce",
        (Patch(EXPECTED_NONCE, "isinstance(answer, Rejected) and told == Expected(nonce)", "isinstance(answer, Rejected)"),),
        levels=(FOREIGN_HOST,),
    ),
    # --------------------------------------------------------------------------------------------- the pace, the causes
    Mutant(
        "the pauses after refusals do not grow",
        (Patch(REFUSALS, "QUESTION_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)", "QUESTION_PAUSES = (1.0,)"),),
        levels=(PACE,),
    ),
    Mutant(
        "the pauses grow to eight seconds only",
        (Patch(REFUSALS, "(1.0, 2.0, 4.0, 8.0, 16.0, 30.0)", "(1.0, 2.0, 4.0, 8.0)"),),
        levels=(PACE,),
    ),
    Mutant(
        "Retry-After is no floor",
        (Patch(REFUSALS, "max(pause, min(asked, seconds_max))", "pause"),),
        levels=(PACE,),
    ),
    Mutant(
        "Retry-After has no limit",
        (Patch(REFUSALS, "min(asked, seconds_max)", "asked"),),
        levels=(PACE,),
    ),
    Mutant(
        "Retry-After of a page that is not OldHost's is not read",
        (Patch(HTTP_WIRE, "            return no_service(response)\n", "            return replace(no_service(response), retry_after=None)\n"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a log-in that answers an operation is about that operation only",
        (Patch(REFUSAL, '_reason(response) == "credentials" or wants_less', "response.status in CREDENTIALS or wants_less"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "Retry-After is given in seconds only",
        (Patch(RESPONSE, "    then, now = _instant(value), _instant(date)\n", "    then, now = None, _instant(date)\n"),),
        levels=(ANSWER_HEADERS,),
    ),
    Mutant(
        "a ban lasts as long as its body says, or as configured",
        (Patch(WIRE, "isinstance(answer, Banned | Replay) and answer.retry_after is None", "False"),),
        levels=(ANSWER_HEADERS,),
    ),
    Mutant(
        "an answered question ends the pauses after refused operations",
        (Patch(REFUSALS, "self._refused[operation] = 0\n", "self._refused = {True: 0, False: 0}\n"),),
        levels=(PACE,),
    ),
    Mutant(
        "refused operations have no pace",
        (Patch(SHARED_CONNECTION, "if refusal is not None:", "if False:"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a pause before a connection is not kept",
        (Patch(INQUIRY, "if (early := self.pace.postpones(self.clock())) is not None:", "if (early := None) is not None:"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a good answer leaves the pauses as they are",
        (Patch(INQUIRY, "            self.pace.answered(operation=False)\n", ""),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "each worker's pauses begin anew",
        (Patch("oldhost_sync/policy/machine/machine.py", "        if event.reason in REFUSALS:  # each worker counts for itself\n", "        if False:\n"),),
        levels=(REFUSING_HOSTS,),
    ),
    Mutant(
        "refused credentials are a refusal as any other",
        (Patch(REFUSAL, 'return "credentials"', 'return "refused"'),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "the settle time hides why a host can't be asked",
        (Patch(RECOVERY, 'also = f"; {early.message}"', 'also = ""'),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "the settle time hides that a host refuses us",
        (Patch(RECOVERY, '_REFUSED = REFUSALS | {"ban"}', '_REFUSED = frozenset({"ban"})'),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a silent host can't be reached",
        (Patch(INQUIRY, 'self._come_back("silent", f"OldHost takes the connection and our request: {error}")', 'self._come_back("connection", str(error))'),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a host that is too slow is told of without the setting",
        (Patch("oldhost_sync/oldhost/connection.py", ", its request timeout", ""),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "a ban lasts no longer than the setting",
        (Patch("oldhost_sync/oldhost/session_limits.py", "return self.ban_seconds if retry_after is None else retry_after", "return min(self.ban_seconds, retry_after or self.ban_seconds)"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "in a long ban nobody asks again",
        (Patch("oldhost_sync/oldhost/session_limits.py", "return not 0 <= told_ms_ago < 1000 * self.ban_seconds", "return told_ms_ago < 0"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "in a long ban the writer sleeps until its end",
        (Patch("oldhost_sync/policy/machine/session.py", "return min(self.breaker.until_ms, self.breaker.told_at_ms + self.ask_again_ms)", "return self.breaker.until_ms"),),
        levels=(REFUSING_HOSTS,),
    ),
    # ------------------------------------------------------------------------------------------ how a connection ended
    Mutant(
        "stray bytes are a host without keep-alive",
        (Patch(REFUSALS, "    if ending is ConnectionEnd.STRAY:\n", "    if False:\n"),),
        levels=(PACE,),
    ),
    Mutant(
        "a host that gives some answers lacks keep-alive",
        (Patch(REFUSALS, "ending is ConnectionEnd.QUIET and answers > 1", "False"),),
        levels=(PACE,),
    ),
    Mutant(
        "HTTP/1.0 is a close that was announced",
        (Patch(RESPONSE, "ConnectionEnd.OLD_VERSION if self._is_old else keeps", "keeps if not self._is_old else ConnectionEnd.ANNOUNCED"),),
        levels=(FOREIGN_HOST,),
    ),
    Mutant(
        "sessions that answers break again and again are told to nobody",
        (Patch(LOST_ANSWERS, "            self.broken_until_ms = now_ms + BROKEN_SESSIONS_MS\n", ""),),
        levels=(REFUSING_HOSTS,),
    ),
    Mutant(
        "sessions that broke long ago count",
        (Patch(LOST_ANSWERS, "now_ms - self.broken_at_ms[0] <= BROKEN_SESSIONS_MS", "True"),),
        levels=(REFUSING_HOSTS,),
    ),
    Mutant(
        "the alert about broken sessions stays open",
        (Patch("oldhost_sync/policy/machine/conditions.py", "if now_ms < answers.broken_until_ms:", "if answers.broken_until_ms:"),),
        levels=(REFUSING_HOSTS,),
    ),
    Mutant(
        "a ban breaks a session",
        (Patch(LOST_ANSWERS, 'frozenset({"", "banned", "replay"})', 'frozenset({"", "replay"})'),),
        levels=(REFUSING_HOSTS,),
    ),
    # ------------------------------------------------------------------------------------------- halts without a cause
    Mutant(
        "a halt whose count fits again takes two decisions",
        (Patch(HALT_RESOLUTION, " and expected != (last or 0) + 1:", ":"),),
        levels=(RESOLVES,),
    ),
    Mutant(
        "nobody asks whether a halted host's count fits again",
        (Patch(SESSION, "count = self.count(host)", "count = Count(None, 'not asked')"),),
        levels=(HALTED_COUNT,),
    ),
    Mutant(
        "a count that does not fit is told as one that does",
        (Patch(HALT_COUNT, " or count.nonce != ledger.last_applied_nonce + 1:", ":"),),
        levels=(HALT_DECISIONS,),
    ),
    Mutant(
        "a count that fits again does not show on the halt",
        (Patch(HALT_COUNT, "    return show(connection, host, ledger, count.nonce, why)\n", "    return why\n"),),
        levels=(HALTED_COUNT,),
    ),
    # ---------------------------------------------------------------------------------------------- names and addresses
    Mutant(
        "an address that stays silent is tried first again",
        (Patch(CONNECTOR, "in_vain=not connection.has_served", "in_vain=False"),),
        levels=(ADDRESSES,),
    ),
    Mutant(
        "an address that takes no connection is tried first again",
        (Patch(CONNECTOR, "                self._note((family, address), in_vain=True)\n", ""),),
        levels=(ADDRESSES,),
    ),
    Mutant(
        "a proxy's page is a good answer of an address",
        (Patch("oldhost_sync/oldhost/connection.py", "self.has_served or not isinstance(reply.event, NoService | Unlisted)", "True"),),
        levels=(ADDRESSES,),
    ),
    Mutant(
        "one look-up that finds another address ends the session",
        (Patch(CONNECTOR, "LOOK_UPS_TO_MOVE = 3", "LOOK_UPS_TO_MOVE = 1"),),
        levels=(ADDRESSES,),
    ),
    Mutant(
        "look-ups that find other addresses each time agree",
        (Patch(CONNECTOR, "self._times + 1 if is_same else 1", "self._times + 1"),),
        levels=(ADDRESSES,),
    ),
    Mutant(
        "a name server that is away proves a move",
        (Patch(CONNECTOR, "        if not found:  # the name server is away, which proves nothing\n            return\n", ""),),
        levels=(ADDRESSES,),
    ),
    Mutant(
        "a session stays with an address that its name has left",
        (Patch(SESSION, "if self._connector(host).has_moved():", "if False:"),),
        levels=(MOVED_NAME,),
    ),
    Mutant(
        "a password in OldHost's address is dropped",
        (Patch(ADDRESS, "    if has_credentials(url):\n        raise ValueError(\n", "    if False:\n        raise ValueError(\n"),),
        levels=(SETTINGS,),
    ),
    Mutant(
        "an international name is taken as it is",
        (Patch(ADDRESS, "    if not url.isascii():\n", "    if False:\n"),),
        levels=(SETTINGS,),
    ),
    Mutant(
        "a path in OldHost's address is dropped",
        (Patch(ADDRESS, 'base = parts.path.rstrip("/")', 'base = ""'),),
        levels=(SETTINGS,),
    ),
    Mutant(
        "a zone in OldHost's address is dropped",
        (Patch(ADDRESS, "    if not _NAME.fullmatch(parts.hostname):\n", "    if not parts.hostname:\n"),),
        levels=(SETTINGS,),
    ),
    Mutant(
        "OldHost's certificate may be anybody's",
        (Patch(ACCESS, '        context.set_alpn_protocols(["http/1.1"])\n', "        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE\n"),),
        levels=(TLS,),
    ),
    Mutant(
        "OldHost's certificate may be for another name",
        (Patch(ACCESS, '        context.set_alpn_protocols(["http/1.1"])\n', "        context.check_hostname = False\n"),),
        levels=(TLS,),
    ),
    Mutant(
        "an answer over TLS may end anywhere",
        (Patch(CONNECTOR, ", suppress_ragged_eofs=False", ""),),
        levels=(TLS,),
    ),
    Mutant(
        "a refused certificate is looked for in answers only",
        (Patch("oldhost_sync/oldhost/connection.py", "                if self._is_certificate_refused(sock):\n", "                if False:\n"),),
        levels=(TLS,),
    ),
    Mutant(
        "credentials are read once",
        (Patch(CONNECTOR, "secrets = self._access.authorization(),", "secrets = self._peer.authorization or self._access.authorization(),"),),
        levels=(TLS,),
    ),
    Mutant(
        "the proxy's credentials are sent to OldHost",
        (Patch(CONNECTOR, "secrets = self._access.authorization(),", "secrets = self._access.proxy_authorization(),"),),
        levels=(PROXY,),
    ),
    Mutant(
        "the head of a proxy's answer may take for ever",
        (Patch(CONNECTOR, '_wait(sock, until, self._clock, heartbeat, "it gave', '_wait(sock, self._clock() + TUNNEL_SECONDS_MAX, self._clock, heartbeat, "it gave'),),
        levels=(PROXY,),
    ),
    Mutant(
        "a proxy's yes that is cut is a tunnel",
        (Patch(PROXY_ANSWER, "if status >= 300 or (status and head.endswith(_ENDS)):", "if status:"),),
        levels=(PROXY,),
    ),
    Mutant(
        "a proxy's redirect is a tunnel",
        (Patch(PROXY_ANSWER, "    if status >= 300:\n        raise", "    if status >= 400:\n        raise"),),
        levels=(PROXY,),
    ),
    Mutant(
        "a proxy is asked for an IPv6 address without brackets",
        (Patch(PROXY_ANSWER, 'f"[{host.name}]" if ":" in host.name else host.name', "host.name"),),
        levels=(PROXY,),
    ),
    Mutant(
        "a proxy's head has no limit",
        (Patch(PROXY_ANSWER, " and len(head) < HEAD_BYTES_MAX", ""),),
        levels=(PROXY,),
    ),
    Mutant(
        "an error about credentials holds what they are",
        (Patch(ACCESS, '_read(file).decode(errors="replace")', "_decoded(_read(file))"),
         Patch(ACCESS, "def _why(", 'def _decoded(read: bytes) -> str:\n    try:\n        return read.decode()\n    except ValueError:\n        raise NoAccess("credentials", AUTH_SHAPE) from None\n\n\ndef _why(')),
        levels=(SECRETS,),
    ),
)  # fmt: skip
