"""Wrong ideas at the doors: what comes in, what applications and clients are told, and who may look."""

from __future__ import annotations

from tests.mutants.levels import (
    BODIES,
    CALLERS,
    CALLERS_ERRORS,
    CODEC,
    DOORS,
    FEED,
    FULL_DISK,
    HOST_CONDITION,
    LIVE_PAGES,
    ODD_QUERIES,
    OFFERS,
    OUTBOX,
    PROCEDURE,
    RECORDING_DRIVERS,
    SIGN_IN,
    SITUATION,
    STALLS,
    STATE_SIZE,
    SYSTEM_DOORS,
    VALIDATORS_UNIT,
    WATCHED_FILE,
)
from tests.mutants.mutant import Mutant, Patch

PROCEDURES = "oldhost_sync/store/intake/procedure.py"
RECORDER = "oldhost_sync/store/intake/change_recorder.py"
BATCH_RECORDER = "oldhost_sync/store/intake/batch_recorder.py"
BATCH_KEYS = "oldhost_sync/store/intake/batch_recorder.py"
SHADOW = "oldhost_sync/store/intake/shadow.py"
MOMENT = "oldhost_sync/fields/scalar.py"
JSON_TEXT = "oldhost_sync/fields/json_text.py"
TEXT = "oldhost_sync/fields/scalar.py"
NUMBER = "oldhost_sync/fields/scalar.py"
OFFER = "oldhost_sync/api/connection.py"
CONNECTION = "oldhost_sync/api/connection.py"
FEED_VIEW = "oldhost_sync/store/read/change_feed.py"
SITUATION_VIEW = "oldhost_sync/api/situation.py"
CONDITION = "oldhost_sync/store/read/host_condition.py"
LAST_REFUSAL = "oldhost_sync/api/refused_writes.py"
METRICS = "oldhost_sync/api/telemetry.py"
LIVE_STREAM = "oldhost_sync/console/live_stream.py"
LIVE_PAGE = "oldhost_sync/console/writer_pages.py"
DOOR = "oldhost_sync/console/door.py"
SIGN_INS = "oldhost_sync/console/sign_ins.py"
SESSIONS = "oldhost_sync/store/access.py"
FILE = "oldhost_sync/watched_file.py"
FIRST_SCHEMA = "migrations/versions/0001_first_schema.py"
INTAKE = "workflows/intake.py"
VALIDATORS = "workflows/direct_changes.py"

MUTANTS = (
    # ------------------------------------------------------------------------------------------------ recorded in SQL
    Mutant(
        "in SQL a name may occur twice in one object",
        (Patch(PROCEDURES, "IF names < members THEN", "IF FALSE THEN"),),
        levels=(PROCEDURE,),
    ),
    Mutant(
        "in SQL a whole number of 19 digits is within 64 bit",
        (Patch(PROCEDURES, " AND digits > last)", " AND FALSE)"),),
        levels=(PROCEDURE,),
    ),
    Mutant(
        "in SQL a payload may be a level deeper",
        (Patch(PROCEDURES, "FOR level IN 0 .. {limits.PAYLOAD_DEPTH_MAX} DO", "FOR level IN 0 .. 1 + {limits.PAYLOAD_DEPTH_MAX} DO"),),
        levels=(PROCEDURE,),
    ),
    Mutant(
        "in SQL a number is written as MariaDB writes it",
        (Patch(PROCEDURES, "WHEN point NOT BETWEEN -3 AND 16", "WHEN point NOT BETWEEN -3 AND 15"),),
        levels=(PROCEDURE,),
    ),
    Mutant(
        "in SQL a key is the first one's, whatever the change",
        (Patch(PROCEDURES, "IF NOT first_hash <=> the_hash THEN", "IF FALSE THEN"),),
        levels=(OUTBOX,),
    ),
    Mutant(
        "in SQL what was written before an error stays",
        (Patch(PROCEDURES, "                    {change_recorder.ROLL_BACK};\n                END;\n                RESIGNAL;", "                END;\n                RESIGNAL;"),),
        levels=(CALLERS_ERRORS,),
    ),
    Mutant(
        "in SQL a first answer is found by the outbox's unique index",
        (Patch(PROCEDURES, """_filled(_into(change_recorder.CHANGE_OF_ID, *_CHANGE_ROW), "the_row_id")""", """_filled(_into(change_recorder.CHANGE_OF_KEY, *_CHANGE_ROW), *_OF_KEY)"""),),
        levels=(CALLERS,),
    ),
    Mutant(
        "in SQL each statement may be committed by itself",
        (Patch(PROCEDURES, "IF @@autocommit = 1 AND @@in_transaction = 0 THEN", "IF FALSE THEN"),),
        levels=(OUTBOX,),
    ),
    Mutant(
        "who calls the procedure needs the rights on its tables",
        (Patch(PROCEDURES, "SQL SECURITY DEFINER COMMENT 'records a change", "SQL SECURITY INVOKER COMMENT 'records a change"),),
        levels=(PROCEDURE,),
    ),
    Mutant(
        "migrate leaves the procedures of another version",
        (Patch("oldhost_sync/store/schema_migration.py", "            install_procedures(connection)\n", ""),),
        levels=(PROCEDURE,),
    ),
    # -------------------------------------------------------------------------------- in an application's transaction
    Mutant(
        "what was written before an error that the caller catches stays",
        (Patch(RECORDER, "            connection.exec_driver_sql(ROLL_BACK)\n", "            pass\n"),),
        levels=(CALLERS_ERRORS,),
    ),
    Mutant(
        "a batch that fails in its middle leaves its beginning",
        (Patch(BATCH_RECORDER, "with all_or_nothing(connection):", "if True:"),),
        levels=(CALLERS_ERRORS,),
    ),
    Mutant(
        "a deadlock behind a known key is hidden",
        (Patch(RECORDER, "                raise gone from error\n", "                pass\n"),),
        levels=(CALLERS_ERRORS,),
    ),
    Mutant(
        "a key's first answer is found by the outbox's unique index",
        (Patch(RECORDER, "    place = row_of(ROW_OF_KEY, change.host, change.idempotency_key)\n", "    return _recorded_before(connection, change, lock_wait)\n"),),
        levels=(CALLERS, CALLERS_ERRORS),
    ),
    Mutant(
        "a key is not taken in its own table",
        (Patch(RECORDER, "    if not has_key:\n        _take_key(connection, change, lock_wait, scheduled=False)\n", ""),),
        levels=(CALLERS_ERRORS, CALLERS),
    ),
    Mutant(
        "autocommit is refused by what the driver says",
        (Patch(SHADOW, 'f"IF(@@autocommit = 1 AND @@in_transaction = 0, NULL, {value})"', "value"),),
        levels=(RECORDING_DRIVERS,),
    ),
    # --------------------------------------------------------------------------------------- one parser for each field
    Mutant(
        "a time without seconds is a time",
        (Patch(MOMENT, "not _RFC_3339.fullmatch(value)", "not value"),),
        levels=(DOORS,),
    ),
    Mutant(
        "any year is a year",
        (Patch(MOMENT, "    if not limits.YEAR_MIN <= moment.year <= limits.YEAR_MAX:\n", "    if False:\n"),),
        levels=(DOORS,),
    ),
    Mutant(
        "of a name that occurs twice the last one counts",
        (Patch(JSON_TEXT, "    if len(made) < len(pairs):\n", "    if False:\n"),),
        levels=(DOORS,),
    ),
    Mutant(
        "NaN is JSON",
        (Patch(JSON_TEXT, '    raise InvalidField(_TEXT, f"it has {name}, which is not JSON", NOT_JSON)\n', "    return 0\n"),),
        levels=(DOORS,),
    ),
    Mutant(
        "the encoding of a JSON text is guessed",
        (Patch(JSON_TEXT, "text = text.decode() if isinstance(text, bytes) else text", "text = text"),),
        levels=(DOORS,),
    ),
    Mutant(
        "half a character is text",
        (Patch(JSON_TEXT, 'return "" if is_unicode(value) else', 'return "" if True else'),),
        levels=(DOORS,),
    ),
    Mutant(
        "a name may begin with -",
        (Patch(TEXT, "not _NAME.fullmatch(value)", 'not _NAME.fullmatch(value.lstrip("-"))'),),
        levels=(DOORS,),
    ),
    Mutant(
        "an id may hold what can't be seen",
        (Patch(TEXT, "not 0 < len(value) <= length_max or not value.isprintable()", "not 0 < len(value) <= length_max"),),
        levels=(DOORS,),
    ),
    Mutant(
        "a body that a route reads itself may say things twice",
        (Patch("oldhost_sync/api/requests.py", "        return read_json(body)\n", "        return __import__('json').loads(body)\n"),),
        levels=(BODIES, DOORS),
    ),
    Mutant(
        "a number in a query is what Python takes for one",
        (Patch(NUMBER, "if not _WHOLE.fullmatch(text) or not", "if not"),),
        levels=(ODD_QUERIES,),
    ),
    Mutant(
        "an update's change is read by the SDK",
        (Patch(INTAKE, 'value = read_json(raw.payload.data) if raw.payload.metadata.get("encoding") == PLAIN_JSON else _value(raw)', "value = _value(raw)"),),
        levels=(SYSTEM_DOORS,),
    ),
    Mutant(
        "a change that an update can't have is in history",
        (Patch(VALIDATORS, "    read_change(change)\n", ""),),
        levels=(VALIDATORS_UNIT,),
    ),
    # -------------------------------------------------------------------------------------- one request, one answer
    Mutant(
        "what follows an offer is the next request",
        (Patch(CONNECTION, "        if self.parser.should_upgrade():\n", "        if False:\n"),),
        levels=(OFFERS,),
    ),
    Mutant(
        "the length of a body behind an offer is forgotten",
        (Patch(OFFER, "for name, value in headers if name in _FRAMING", "for name, value in headers if not name"),),
        levels=(OFFERS,),
    ),
    Mutant(
        "a body that was waited for in vain is read as a request",
        (Patch(OFFER, 'if message["type"] == "http.response.start" and not is_read:', "if False:"),),
        levels=(OFFERS,),
    ),
    Mutant(
        "who ends its side gets no answer",
        (Patch(CONNECTION, "        if not self._in_body:\n            return True\n", ""),),
        levels=(OFFERS,),
    ),
    Mutant(
        "HTTP/1.0 may send a body in chunks",
        (Patch(CONNECTION, 'if codings and (version == "1.0" or codings != [b"chunked"]):', 'if codings and codings != [b"chunked"]:'),),
        levels=(OFFERS,),
    ),
    Mutant(
        "any version of HTTP is served",
        (Patch(CONNECTION, "        if version not in VERSIONS:\n", "        if False:\n"),),
        levels=(OFFERS,),
    ),
    # ------------------------------------------------------------------------------------ positions and sizes
    Mutant(
        "a cursor of another database is valid if its number is",
        (Patch(FEED_VIEW, "if since.sequence > forgotten and not _is_of_this_database(connection, host, since):", "if since.sequence > _sequence(connection, host):"),),
        levels=(FEED,),
    ),
    Mutant(
        "a cursor is of a number, not of a fate",
        (Patch(FEED_VIEW, 'AND fate_sequence = :sequence AND processed_at = :at"\n)\n_ACTED_ON', 'AND fate_sequence = :sequence AND :at IS NOT NULL"\n)\n_ACTED_ON'),),
        levels=(FEED,),
    ),
    Mutant(
        "the end of the feed is a number",
        (Patch(FEED_VIEW, '    newest = connection.execute(_NEWEST, {"host": host}).one_or_none()\n', "    newest = None\n"),),
        levels=(FEED,),
    ),
    Mutant(
        "an operator's act makes its reader's cursor foreign",
        (Patch(FEED_VIEW, "for query in (_SEEN, _ACTED_ON)", "for query in (_SEEN,)"),),
        levels=(FEED,),
    ),
    Mutant(
        "a state that is too large is an error of the server",
        (Patch(SHADOW, "    return error_code(error) == CHECK_VIOLATED and STATE_SIZE in str(error.orig)\n", "    return False\n"),),
        levels=(STATE_SIZE,),
    ),
    Mutant(
        "an entity's state has no limit",
        (Patch(FIRST_SCHEMA, 'sa.CheckConstraint("OCTET_LENGTH(state) <= 262144", name="ck_units_state_size"),', ""),
         Patch(FIRST_SCHEMA, 'sa.CheckConstraint("OCTET_LENGTH(state) <= 262144", name="ck_entities_state_size"),', "")),
        levels=(STATE_SIZE,),
    ),
    # ------------------------------------------------------------------------------------------------- what is told
    Mutant(
        "the newest alert decides the next step",
        (Patch(CONDITION, "(rank.get(alert.severity, 2), -alert.alert_id)", "-alert.alert_id"),),
        levels=(HOST_CONDITION,),
    ),
    Mutant(
        "an open session is told though nothing gets through",
        (Patch(SITUATION_VIEW, "    if stalled := _stalled(sight):\n        return stalled\n", ""),),
        levels=(SITUATION,),
    ),
    Mutant(
        "of several stalls the one that is raised first is told",
        (Patch(SITUATION_VIEW, "first = min(alerts, key=lambda alert: _STALLS.index(alert.kind))", "first = alerts[0]"),),
        levels=(SITUATION,),
    ),
    Mutant(
        "while OldHost is asked whether the ban is over, it is over",
        (Patch(SITUATION_VIEW, " or is_asked or (ban if", " or (ban if"),),
        levels=(SITUATION,),
    ),
    Mutant(
        "a refused write leaves the process ready",
        (Patch("oldhost_sync/api/routes/health.py", "await self._readiness.see() or of_writes", "await self._readiness.see()"),),
        levels=(FULL_DISK,),
    ),
    Mutant(
        "a process that refused a write is never ready again",
        (Patch(LAST_REFUSAL, "        self.problem = None\n", "        pass\n"),),
        levels=(FULL_DISK,),
    ),
    Mutant(
        "a refused write counts for ever",
        (Patch(LAST_REFUSAL, "return self.problem if now - self.at <= http_limits.READY_REFUSED_SECONDS else None", "return self.problem"),),
        levels=(FULL_DISK,),
    ),
    Mutant(
        "a locked row makes the process not ready",
        (Patch(LAST_REFUSAL, '"commit-uncertain"})', '"commit-uncertain", "contended"})'),),
        levels=(FULL_DISK,),
    ),
    # ------------------------------------------------------------------------------------------------- who may look
    Mutant(
        "each method of a known path has a row of metrics",
        (Patch(METRICS, '    if scope["method"] not in (getattr(route, "methods", None) or ()):\n', "    if route is None:\n"),),
        levels=(STALLS,),
    ),
    Mutant(
        "metrics are rendered for each who asks",
        (Patch(METRICS, "            if time.monotonic() >= self._page_until:\n", "            if True:\n"),),
        levels=(STALLS,),
    ),
    Mutant(
        "metrics are rendered on the loop",
        (Patch(METRICS, "await asyncio.to_thread(generate_latest, self.registry)", "generate_latest(self.registry)"),),
        levels=(STALLS,),
    ),
    Mutant(
        "a page of metrics is never old",
        (Patch("oldhost_sync/api/http_limits.py", "METRICS_SECONDS = 1.0", "METRICS_SECONDS = 0.0"),),
        levels=(STALLS,),
    ),
    Mutant(
        "what a token reads is not counted",
        (Patch("oldhost_sync/api/quotas.py", "self._count(token, http_limits.READ_BYTES_EACH + size - reserved)", "pass"),),
        levels=(STALLS,),
    ),
    Mutant(
        "one sign-in may have all live pages",
        (Patch(LIVE_STREAM, "self._of_owner[sign_in] >= OF_ONE_SIGN_IN_MAX or ", ""),),
        levels=(LIVE_PAGES,),
    ),
    Mutant(
        "one token may have all live pages",
        (Patch(LIVE_STREAM, " or self._of_owner[token] >= OF_ONE_TOKEN_MAX", ""),),
        levels=(LIVE_PAGES,),
    ),
    Mutant(
        "a sign-in's part of the live pages is all of them",
        (Patch(LIVE_STREAM, "OF_ONE_SIGN_IN_MAX, OF_ONE_TOKEN_MAX = 12, 32", "OF_ONE_SIGN_IN_MAX, OF_ONE_TOKEN_MAX = 64, 64"),),
        levels=(LIVE_PAGES,),
    ),
    Mutant(
        "a page that was closed keeps its place",
        (Patch(LIVE_STREAM, "            self._of_owner -= Counter(owners)\n", ""),),
        levels=(LIVE_PAGES,),
    ),
    Mutant(
        "a live page outlives its sign-in",
        (Patch(LIVE_PAGE, "while await self.console.sign_ins.lasts(sign_in):", "while True:"),),
        levels=(LIVE_PAGES,),
    ),
    Mutant(
        "payloads are decoded for any page while the UI's address is not set",
        (Patch(DOOR, 'if self._temporal_ui is None or request.headers.get("origin") != self._temporal_ui:', 'if request.headers.get("origin") != self._temporal_ui:'),),
        levels=(CODEC,),
    ),
    Mutant(
        "payloads are decoded without a record",
        (Patch("oldhost_sync/console/codec_page.py", "        await self.console.dependencies.database.run(\n            lambda connection: record_act(", "        await self.console.dependencies.database.run(\n            lambda connection: None if True else record_act("),),
        levels=(CODEC,),
    ),
    Mutant(
        "a secret is as old as the process",
        (Patch(FILE, "        if current == self._seen:\n", "        if True:\n"),),
        levels=(WATCHED_FILE,),
    ),
    Mutant(
        "a mounted secret's link is not followed",
        (Patch(FILE, "return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev", "return (found.st_size,)"),),
        levels=(WATCHED_FILE,),
    ),
    Mutant(
        "a file that makes no sense ends what was valid",
        (Patch(FILE, "        except (OSError, ValueError) as error:\n", "        except OSError as error:\n"),),
        levels=(WATCHED_FILE,),
    ),
    Mutant(
        "a file is looked at with each use",
        (Patch(FILE, "if self._clock() - self._looked_at < LOOKED_AT_EVERY_SECONDS:", "if False:"),),
        levels=(WATCHED_FILE,),
    ),
    Mutant(
        "a live page of a sign-in that nobody uses lasts",
        (Patch(SESSIONS, '"AND seen_at > UTC_TIMESTAMP(6) - INTERVAL :idle SECOND"', '"AND seen_at > UTC_TIMESTAMP(6) - INTERVAL 1000 * :idle SECOND"'),),
        levels=(LIVE_PAGES,),
    ),
    Mutant(
        "a live page is a use",
        (Patch(DOOR, "is_use=path != STREAM", "is_use=True"),),
        levels=(SIGN_IN,),
    ),
    Mutant(
        "a use is not stored",
        (Patch(SIGN_INS, "        if is_use and holder.is_due:\n", "        if False:\n"),),
        levels=(SIGN_IN,),
    ),
    Mutant(
        "nobody knows who signed in",
        (Patch(SIGN_INS, '            record_act(connection, host=self._host, action=SIGNED_IN, operator=who, reason="")\n', ""),),
        levels=(SIGN_IN,),
    ),
    Mutant(
        "nobody knows who signed out",
        (Patch(SIGN_INS, '            record_act(connection, host=self._host, action=SIGNED_OUT, operator=sign_in.caller.operator, reason="")\n', ""),),
        levels=(SIGN_IN,),
    ),
)  # fmt: skip
