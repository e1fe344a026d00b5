"""`CALL record_change(…)`: a change recorded in SQL, for applications in any language, in their own transaction.

It writes the rows that `record_change` writes, byte for byte: the payload is made canonical, and the hash of the
request is the same, so a key that was used at one door gets its first answer at the others. Its statements and limits
are those of the other doors. What only the host's mapping can say is not checked: such a change becomes a dead letter
when it is to be sent (docs/decisions/stored-procedure.md, also on rights).

There are procedures only, no functions: a server with a binary log lets only its administrators create these. JSON is
read with regular expressions, since MariaDB's own functions take names that occur twice, and change numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.engine import Connection

from oldhost_sync.fields.change import FIELDS, NO_OBJECT, REQUIRED
from oldhost_sync.policy import limits
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.errors import CHECK_VIOLATED, DUPLICATE_KEY, NULL_REFUSED
from oldhost_sync.store.intake import change_recorder, shadow, validation
from oldhost_sync.store.intake.rules import DEFAULT_RULES

# SQLSTATE and number of each refusal. The numbers are beyond MariaDB's own, and within 15 bits, as PyMySQL reads them.
INVALID, CONFLICT, UNKNOWN_HOST, NOT_IN_TRANSACTION = (f"OS00{number}" for number in range(1, 5))
NUMBERS = {INVALID: 30001, CONFLICT: 30002, UNKNOWN_HOST: 30003, NOT_IN_TRANSACTION: 30004}
SOURCE = "sql"
# A payload's longest form has six characters for each byte of its shortest, and may have blanks.
TEXT_LENGTH_MAX = 8 * limits.PAYLOAD_BYTES_MAX
# MariaDB's for a number that no double holds, in strict mode; for a savepoint that is gone.
_NOT_A_DOUBLE, _NO_SAVEPOINT = 1292, 1305

# Of a text that SIGNAL takes.
_MESSAGE_LENGTH_MAX = 512

_TEXT = "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _whole(pattern: str) -> str:
    r"""`\z`, because `$` takes a line's end, too."""
    return _literal(rf"\A(?:{pattern})\z")


def _filled(statement: str, *values: str) -> str:
    """A statement of another door with SQL in place of its values."""
    return statement % values


def _into(query: str, *variables: str) -> str:
    return query.replace(" FROM ", f" INTO {', '.join(variables)} FROM ", 1)


def _refuse(message: str, state: str = INVALID) -> str:
    """`message`: an SQL expression."""
    return (
        f"SET wrong = LEFT({message}, {_MESSAGE_LENGTH_MAX}); SIGNAL SQLSTATE '{state}' "
        f"SET MYSQL_ERRNO = {NUMBERS[state]}, MESSAGE_TEXT = wrong"
    )


# ----------------------------------------------------------------------------------------------------------------- JSON

_GRAMMAR = _literal(
    r"""(?x) \A(?&value)\z (?(DEFINE)
    (?<blank>[\ \t\n\r]*+)
    (?<string>"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9A-Fa-f]{4})*+")
    (?<number>-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+)
    (?<member>(?&blank)(?&string)(?&blank):(?&value))
    (?<value>(?&blank)(?:\{(?:(?&member)(?:,(?&member))*+|(?&blank))\}|\[(?:(?&value)(?:,(?&value))*+|(?&blank))\]
    |(?&string)|(?&number)|true|false|null)(?&blank)))"""
)
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_OUTSIDE_STRINGS = rf"{_STRING}(*SKIP)(*FAIL)|"
# What is canonical as it is: structure, printable ASCII, whole numbers that are surely within 64 bit.
_CANONICAL = _literal(r'\A(?:[\[\]{}:,]|"[ !#-\[\]-~]*+"|true|false|null|-?[1-9][0-9]{0,17}(?![0-9.eE])|0(?![.eE]))++')
_NO_BRACKETS, _BLANKS = _literal(r"[^\[\]{}]+"), _literal(r"\A[ \t\n\r]++")
_FIRST_STRING = _literal(rf"\A{_STRING}")
_EMPTY_OBJECT = _literal(rf"{_OUTSIDE_STRINGS}\{{\}}")
_NUMBER = _literal(r"\A-?[0-9][0-9.eE+-]*+")
# Within a string: what is canonical as it is; an escape; what must be escaped.
_PLAIN, _ESCAPE = (
    _literal(r'\A(?:[ !#-\[\]-~]|\\["\\bfnrt])++'),
    _literal(r"\A\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\A\\u...."),
)
_BEYOND = _literal(r"\A[^ -~]++")
_BEFORE_VALUE = _literal(r'\A"[ \t\n\r]*:')
_HALF = _literal(r"\Ad[89a-f]..\z")
# An object whose parts are sorted already (their braces are then quotation marks, which canonical text never has), and
# its first member.
_INNERMOST = _literal(rf"{_OUTSIDE_STRINGS}\{{(?:{_STRING}|[^{{}}\"])*+\}}")
_MEMBER = _literal(
    rf"\A{_STRING}:(?:{_STRING}|(?<array>\[(?:{_STRING}|(?<sorted>«(?:[^«»]++|(?&sorted))*+»)|[^\"\[\]«]|(?&array))*+\])"
    r"|(?&sorted)|[^,\"\[«])"
    # A member's value is one of these, or a number or word of some characters.
    r"[^,]*+"
)
_SORTED = f"""GROUP_CONCAT(member ORDER BY name SEPARATOR ','), COUNT(*), COUNT(DISTINCT name) INTO good, members, names
        FROM JSON_TABLE(list, '$[*]' COLUMNS (name {_TEXT} PATH '$[0]', member {_TEXT} PATH '$[1]')) AS of_object"""

_NO_JSON = "it is not JSON: RFC 8259 has its grammar"

_JSON = f"""
CREATE OR REPLACE PROCEDURE record_change_json(IN given {_TEXT}, OUT canonical {_TEXT}, OUT fault {_TEXT})
SQL SECURITY DEFINER COMMENT 'a part of record_change: JSON text in the one form that equal values have'
BEGIN
    DECLARE rest, piece, hex, good, list, last {_TEXT};
    DECLARE digits, wrong {_TEXT};
    DECLARE at, point, members, names, ordered, half INT;
    DECLARE number DOUBLE;

    IF CHAR_LENGTH(given) > {TEXT_LENGTH_MAX} THEN
        {_refuse(f"'the change has more than {TEXT_LENGTH_MAX} characters'")};
    END IF;
    -- The depth: pairs of brackets, taken away from the inside. First, as the grammar is slow where it is too deep.
    SET rest = REGEXP_REPLACE(given, {_literal(_STRING)}, '');
    SET rest = REPLACE(REPLACE(REGEXP_REPLACE(rest, {_NO_BRACKETS}, ''), '{{', '['), '}}', ']');
    FOR level IN 0 .. {limits.PAYLOAD_DEPTH_MAX} DO
        SET rest = REPLACE(rest, '[]', '');
    END FOR;
    IF LOCATE('[', rest) THEN
        SET last = 'payload nests deeper than {limits.PAYLOAD_DEPTH_MAX} levels';
        {_refuse(f"IF(LOCATE(']', rest), last, '{_NO_JSON}')")};
    END IF;
    IF NOT COALESCE(given REGEXP {_GRAMMAR}, FALSE) THEN
        {_refuse(f"'{_NO_JSON}'")};
    END IF;

    SET canonical = '', fault = NULL, rest = given;
    WHILE rest <> '' DO
        SET piece = REGEXP_SUBSTR(rest, {_CANONICAL});
        SET good = piece;
        IF piece = '' THEN
            SET piece = REGEXP_SUBSTR(rest, {_BLANKS});
        END IF;
        IF piece = '' AND LEFT(rest, 1) = '"' THEN
            SET rest = SUBSTRING(rest, 2), good = '"', half = FALSE;
            WHILE LEFT(rest, 1) <> '"' DO
                SET good = CONCAT(good, REGEXP_SUBSTR(rest, {_PLAIN}));
                SET rest = SUBSTRING(rest, CHAR_LENGTH(REGEXP_SUBSTR(rest, {_PLAIN})) + 1);
                SET piece = REGEXP_SUBSTR(rest, {_ESCAPE});
                IF piece <> '' THEN
                    SET hex = LOWER(REPLACE(piece, '\\\\u', ''));
                    -- MariaDB's own functions take no half of a character.
                    SET half = half OR hex REGEXP {_HALF}, hex = IF(hex REGEXP {_HALF}, '0000', hex);
                    SET good = CONCAT(good, CASE
                        WHEN hex = '0022' THEN '\\\\"' WHEN hex = '005c' THEN '\\\\\\\\'
                        WHEN hex BETWEEN '0020' AND '007e' THEN CHAR(CONV(hex, 16, 10) USING utf8mb4)
                        WHEN hex = '0008' THEN '\\\\b' WHEN hex = '0009' THEN '\\\\t' WHEN hex = '000a' THEN '\\\\n'
                        WHEN hex = '000c' THEN '\\\\f' WHEN hex = '000d' THEN '\\\\r'
                        ELSE REGEXP_REPLACE(hex, '(....)', '\\\\\\\\u\\\\1') END);
                ELSEIF LEFT(rest, 2) = '\\\\/' THEN
                    SET piece = '\\\\/', good = CONCAT(good, '/');
                ELSE
                    SET piece = REGEXP_SUBSTR(rest, {_BEYOND});
                    SET hex = LOWER(HEX(CONVERT(piece USING utf16)));
                    SET good = CONCAT(good, REGEXP_REPLACE(hex, '(....)', '\\\\\\\\u\\\\1'));
                END IF;
                SET rest = SUBSTRING(rest, CHAR_LENGTH(piece) + 1);
            END WHILE;
            SET good = CONCAT(good, '"'), piece = '"';
            IF half THEN
                SET fault = COALESCE(fault, IF(rest REGEXP {_BEFORE_VALUE}, 'a field whose name is not text',
                    'text that is not valid Unicode (a lone surrogate)'));
            END IF;
        ELSEIF piece = '' THEN
            SET piece = REGEXP_SUBSTR(rest, {_NUMBER});
            SET digits = REPLACE(piece, '-', ''), good = piece;
            IF piece = '-0' THEN
                SET good = '0';
            ELSEIF piece NOT REGEXP '[.eE]' THEN
                SET last = IF(LEFT(piece, 1) = '-', '{-limits.INTEGER_MIN}', '{limits.INTEGER_MAX}');
                IF CHAR_LENGTH(digits) > CHAR_LENGTH(last)
                    OR (CHAR_LENGTH(digits) = CHAR_LENGTH(last) AND digits > last) THEN
                    SET fault = COALESCE(fault, 'a whole number beyond 64 bit: send it as text');
                END IF;
            ELSE
                BEGIN
                    DECLARE CONTINUE HANDLER FOR {_NOT_A_DOUBLE}
                        SET fault = COALESCE(fault, 'a number that no double holds'), number = 0;
                    SET number = ABS(CAST(piece AS DOUBLE));
                END;
                -- The shortest digits, written as Python writes them.
                SET digits = CAST(number AS CHAR), at = 0;
                IF LOCATE('e', digits) THEN
                    SET at = SUBSTRING_INDEX(digits, 'e', -1), digits = SUBSTRING_INDEX(digits, 'e', 1);
                END IF;
                SET point = CHAR_LENGTH(SUBSTRING_INDEX(digits, '.', 1)) + at, digits = REPLACE(digits, '.', '');
                SET point = point - CHAR_LENGTH(digits), digits = TRIM(LEADING '0' FROM digits);
                SET point = point + CHAR_LENGTH(digits), digits = TRIM(TRAILING '0' FROM digits);
                SET good = CONCAT(IF(LEFT(piece, 1) = '-', '-', ''), CASE
                    WHEN digits = '' THEN '0.0'
                    WHEN point NOT BETWEEN -3 AND 16
                        THEN CONCAT(LEFT(digits, 1), IF(CHAR_LENGTH(digits) > 1, '.', ''), SUBSTRING(digits, 2), 'e',
                            IF(point > 0, '+', '-'), IF(ABS(point - 1) < 10, '0', ''), ABS(point - 1))
                    WHEN point <= 0 THEN CONCAT('0.', REPEAT('0', -point), digits)
                    WHEN point >= CHAR_LENGTH(digits)
                        THEN CONCAT(digits, REPEAT('0', point - CHAR_LENGTH(digits)), '.0')
                    ELSE CONCAT(LEFT(digits, point), '.', SUBSTRING(digits, point + 1)) END);
            END IF;
        END IF;
        SET canonical = CONCAT(canonical, good), rest = SUBSTRING(rest, CHAR_LENGTH(piece) + 1);
    END WHILE;

    -- Names in the order of their characters, and each once. Objects of none or one member need no look.
    SET canonical = REGEXP_REPLACE(canonical, {_EMPTY_OBJECT}, '«»');
    WHILE fault <=> NULL AND REGEXP_INSTR(canonical, {_INNERMOST}) DO
        SET at = REGEXP_INSTR(canonical, {_INNERMOST}), piece = REGEXP_SUBSTR(canonical, {_INNERMOST});
        SET rest = SUBSTRING(piece, 2, CHAR_LENGTH(piece) - 2), list = '', last = NULL, ordered = TRUE;
        WHILE rest <> '' DO
            SET good = REGEXP_SUBSTR(rest, {_MEMBER});
            SET rest = SUBSTRING(rest, CHAR_LENGTH(good) + 2), digits = REGEXP_SUBSTR(good, {_FIRST_STRING});
            SET hex = IF(LOCATE('\\\\', digits), JSON_UNQUOTE(digits), SUBSTRING(digits, 2, CHAR_LENGTH(digits) - 2));
            SET ordered = ordered AND COALESCE(last < hex, TRUE), last = hex;
            SET list = CONCAT(list, IF(list = '', '[', ',['), JSON_QUOTE(hex), ',', JSON_QUOTE(good), ']');
        END WHILE;
        SET good = SUBSTRING(piece, 2, CHAR_LENGTH(piece) - 2);
        IF NOT ordered THEN
            SET list = CONCAT('[', list, ']');
            SET STATEMENT group_concat_max_len = {2 * TEXT_LENGTH_MAX} FOR SELECT {_SORTED};
            IF names < members THEN
                {_refuse("'it has a name twice in one object: send each name once'")};
            END IF;
        END IF;
        SET canonical = CONCAT(LEFT(canonical, at - 1), '«', good, '»', SUBSTRING(canonical, at + CHAR_LENGTH(piece)));
    END WHILE;
    SET canonical = REPLACE(REPLACE(canonical, '«', '{{'), '»', '}}');
END
"""

# ---------------------------------------------------------------------------------------------------------------- times

# A day earlier, so that no offset leads beyond MariaDB's last day; `moment` NULL: none was given.
_MOMENT = f"""
CREATE OR REPLACE PROCEDURE record_change_moment(
    IN field {_TEXT}, IN given {_TEXT}, OUT moment DATETIME(6), OUT shown {_TEXT}
)
SQL SECURITY DEFINER COMMENT 'a part of record_change: a time of RFC 3339 in UTC, and as the hash of a request has it'
BEGIN
    DECLARE wrong, text {_TEXT};
    SET moment = NULL, shown = 'null';
    IF COALESCE(given, 'null') <> 'null' THEN
        SET text = IF(LEFT(given, 1) = '"', SUBSTRING(given, 2, CHAR_LENGTH(given) - 2), '');
        IF text NOT REGEXP {_whole(limits.MOMENT_PATTERN)} OR LEFT(text, 4) = '0000'
            OR SUBSTRING(text, 9, 2) > DAY(LAST_DAY(CONCAT(LEFT(text, 8), '01'))) THEN
            {_refuse("CONCAT(field, ' must be a time with a time zone (RFC 3339), such as 2026-05-01T12:00:00Z')")};
        END IF;
        IF text >= '1969' THEN
            SET moment = CAST(CONCAT(LEFT(text, 10), ' ', SUBSTRING(text, 12, 8)) AS DATETIME(6)) - INTERVAL 1 DAY
                + INTERVAL RPAD(SUBSTRING(REGEXP_SUBSTR(text, '[.][0-9]+'), 2, 6), 6, '0') MICROSECOND;
            IF RIGHT(text, 1) <> 'Z' THEN
                SET moment = moment - INTERVAL CONCAT(SUBSTRING(text, -6, 1), SUBSTRING(text, -5, 2)) HOUR
                    - INTERVAL CONCAT(SUBSTRING(text, -6, 1), SUBSTRING(text, -2)) MINUTE;
            END IF;
        END IF;
        IF NOT COALESCE(moment >= '{limits.YEAR_MIN - 1}-12-31' AND moment < '{limits.YEAR_MAX}-12-31', FALSE) THEN
            {_refuse(f"CONCAT(field, ' must be in a year from {limits.YEAR_MIN} to {limits.YEAR_MAX}')")};
        END IF;
        SET moment = moment + INTERVAL 1 DAY;
        SET shown = CONCAT('"', DATE_FORMAT(moment, '%Y-%m-%dT%H:%i:%s'),
            IF(MICROSECOND(moment), DATE_FORMAT(moment, '.%f'), ''), '+00:00"');
    END IF;
END
"""

# ----------------------------------------------------------------------------------------------------------- the change

_NAME = "must be 1 to 64 of the characters A-Z a-z 0-9 _ . - and not begin with -"
_ID, _ID_MUST = r"(?:[^\p{{C}}\p{{Z}}]| ){{1,{}}}", "must be 1 to {} printable characters"
_LABEL, _LABEL_MUST = r"[^\x00-\x1f\x7f-\x9f]{{1,{}}}", "must be 1 to {} characters without control characters"
_KEY = rf"(?=.{{1,{limits.KEY_LENGTH_MAX}}}\z){limits.KEY_PATTERN}"
_TRACEPARENT = _literal(rf"\A{limits.TRACEPARENT_PATTERN}")
_KEY_MUST = f"must be 1 to {limits.KEY_LENGTH_MAX} visible ASCII characters without spaces"


def _checked(field: str, variable: str, pattern: str, must: str) -> str:
    """The variable must be text of this form."""
    return f"""IF NOT COALESCE({variable} REGEXP {_whole(pattern)}, FALSE) THEN
        {_refuse(f"'{field} {must}'")};
    END IF;"""


def _part(whole: str, name: str) -> str:
    """A value as the canonical JSON text has it; NULL: there is none."""
    return f"JSON_COMPACT(JSON_EXTRACT({whole}, '$.{name}'))"


def _field(name: str, pattern: str, must: str) -> str:
    """Read a field that must be text into the variable of its name."""
    return f"""SET part = {_part("fields", name)};
    SET the_{name} = IF(LEFT(part, 1) = '"', JSON_UNQUOTE(part), NULL);
    {_checked(name, f"the_{name}", pattern, must)}"""


def _unit_column(name: str, length_max: int) -> str:
    pattern, must = (_ID, _ID_MUST) if name in validation.ID_COLUMNS else (_LABEL, _LABEL_MUST)
    checked = _checked(f"payload.{name}", f"unit_{name}", pattern.format(length_max), must.format(length_max))
    return f"""SET part = {_part("the_payload", name)}, sets_{name} = COALESCE(LEFT(part, 1) IN ('"', 'n'), FALSE);
        IF LEFT(part, 1) = '"' THEN
            SET unit_{name} = JSON_UNQUOTE(part);
            {checked}
        END IF;"""


# Of a name in a message: \x1b instead of \u001b.
_SHORTENED = ", ".join((_literal(r"\u00"), _literal(r"\x")))
_UNIT_COLUMNS = [name for columns in validation.UNIT_COLUMNS.values() for name in columns]
_READ_UNIT_COLUMNS = "".join(
    f"""
    IF the_entity_type = 'unit' AND the_event_type = '{event_type}' THEN
        {" ".join(_unit_column(*column) for column in columns.items())}
    END IF;"""
    for event_type, columns in validation.UNIT_COLUMNS.items()
)
_LACKING = ", ".join(
    f"IF(COALESCE(JSON_EXTRACT(fields, '$.{name}'), 'null') = 'null', '{name}', NULL)" for name in REQUIRED
)
_DEFAULT_CLASS = f"""CASE the_event_type
    {" ".join(f"WHEN '{name}' THEN '{each}'" for name, each in DEFAULT_RULES.items() if each != PriorityClass.TXN)}
    ELSE '{PriorityClass.TXN}' END"""
_OF_KEY = ("the_host", "the_idempotency_key")
_OF_CLASS = ("the_host", "the_event_type", "the_host", _DEFAULT_CLASS)
_SUBMITTED = (
    *(*_OF_KEY, "the_hash", "the_entity_type", "the_entity_id", "the_event_type", "the_payload", "the_source"),
    "the_occurred_at",
    "the_traceparent",
)
_CHANGE_ROW = ("ignored", "the_change_id", "first_hash", "the_class", "accepted_at", "the_outcome", "the_nonce")
_SCHEDULED_ROW = ("ignored", "the_schedule_id", "first_hash", "the_change_id", "accepted_at", "ended_at")


def _of_either(statement: Callable[[shadow.Shadow], str]) -> str:
    return f"""IF the_entity_type = 'unit' THEN
                {statement(shadow.UNIT_SHADOW)};
            ELSE
                {statement(shadow.ENTITY_SHADOW)};
            END IF"""


def _key_of(of: shadow.Shadow) -> tuple[str, ...]:
    return of.key_of("the_host", ("the_entity_type", "the_entity_id"))


def _write(of: shadow.Shadow) -> str:
    names = _UNIT_COLUMNS if of is shadow.UNIT_SHADOW else []
    statement = of.write.format(columns="".join(f"{name} = IF(sets_{name}, unit_{name}, {name}), " for name in names))
    return _filled(statement, """CONCAT('$."', the_event_type, '"')""", "the_payload", "the_row_id", *_key_of(of))


_RECORD = f"""
CREATE OR REPLACE PROCEDURE record_change(IN given_host {_TEXT}, IN given_change {_TEXT}, IN given_source {_TEXT})
SQL SECURITY DEFINER COMMENT 'records a change in the transaction of its caller; docs/recording.md'
BEGIN
    -- No variable has a column's name: it would be read in its place.
    DECLARE fields, fault, part, the_payload, occurred, due, wrong, ignored {_TEXT};
    DECLARE the_host, the_entity_type, the_entity_id, the_event_type, the_idempotency_key, the_source {_TEXT};
    DECLARE the_traceparent {_TEXT};
    DECLARE {", ".join(f"unit_{name}" for name in _UNIT_COLUMNS)} {_TEXT};
    DECLARE {", ".join(f"sets_{name}" for name in _UNIT_COLUMNS)}, is_later BOOLEAN DEFAULT FALSE;
    DECLARE the_hash, first_hash BINARY(32);
    DECLARE the_occurred_at, the_not_before, accepted_at, ended_at DATETIME(6);
    DECLARE the_row_id, the_change_id, the_schedule_id, the_nonce BIGINT;
    DECLARE the_class, the_outcome VARCHAR(16);
    DECLARE failed INT DEFAULT 0;

    SET the_host = given_host, the_source = COALESCE(given_source, '{SOURCE}');
    CALL record_change_json(given_change, fields, fault);
    IF NOT COALESCE(LEFT(fields, 1) = '{{', FALSE) THEN
        {_refuse(f"'{NO_OBJECT}'")};
    END IF;
    SET part = JSON_KEYS(fields);
    FOR number IN 0 .. JSON_LENGTH(part) - 1 DO
        SET ignored = JSON_EXTRACT(part, CONCAT('$[', number, ']'));
        SET ignored = SUBSTRING(ignored, 2, CHAR_LENGTH(ignored) - 2);
        IF ignored NOT IN ({", ".join(f"'{name}'" for name in FIELDS)}) THEN
            SET ignored = REPLACE(LEFT(ignored, 64), {_SHORTENED});
            {_refuse(f"CONCAT('the change has unknown fields: ', ignored, '; known are {', '.join(FIELDS)}')")};
        END IF;
    END FOR;
    SET part = CONCAT_WS(', ', {_LACKING});
    IF part <> '' THEN
        {_refuse("CONCAT('the change lacks ', part)")};
    END IF;
    {_checked("host", "the_host", limits.NAME_PATTERN, _NAME)}
    {_field("entity_type", limits.NAME_PATTERN, _NAME)}
    {_field("entity_id", _ID.format(limits.ID_LENGTH_MAX), _ID_MUST.format(limits.ID_LENGTH_MAX))}
    {_field("event_type", limits.NAME_PATTERN, _NAME)}
    SET the_idempotency_key = UUID();
    IF COALESCE(JSON_EXTRACT(fields, '$.idempotency_key'), 'null') <> 'null' THEN
        {_field("idempotency_key", _KEY, _KEY_MUST)}
    END IF;
    SET the_payload = {_part("fields", "payload")};
    IF LEFT(the_payload, 1) <> '{{' THEN
        {_refuse("'payload must be a JSON object'")};
    END IF;
    IF fault IS NOT NULL THEN
        {_refuse("CONCAT('payload has ', fault)")};
    END IF;
    IF LENGTH(the_payload) > {limits.PAYLOAD_BYTES_MAX} THEN
        SET part = ' bytes of JSON; at most {limits.PAYLOAD_BYTES_MAX} are accepted';
        {_refuse("CONCAT('payload is ', LENGTH(the_payload), part)")};
    END IF;
    {_READ_UNIT_COLUMNS}
    CALL record_change_moment('occurred_at', {_part("fields", "occurred_at")}, the_occurred_at, occurred);
    CALL record_change_moment('not_before', {_part("fields", "not_before")}, the_not_before, due);
    IF the_not_before > UTC_TIMESTAMP(6) + INTERVAL {limits.NOT_BEFORE_DAYS_MAX} DAY THEN
        {_refuse(f"'not_before is more than {limits.NOT_BEFORE_DAYS_MAX} days ahead'")};
    END IF;
    {_checked("source", "the_source", _ID.format(limits.SOURCE_LENGTH_MAX), _ID_MUST.format(limits.SOURCE_LENGTH_MAX))}
    -- What is not of its form is as none.
    SET part = JSON_UNQUOTE(JSON_EXTRACT(fields, '$.traceparent'));
    IF part REGEXP {_TRACEPARENT} THEN
        SET the_traceparent = CONCAT('00', SUBSTRING(part, 3, {limits.TRACEPARENT_LENGTH - 2}));
    END IF;
    SET the_hash = UNHEX(SHA2(CONCAT(
        '["', the_host, '","', the_entity_type, '",', {_part("fields", "entity_id")}, ',"', the_event_type, '",',
        occurred, ',', due, ']\\n', the_payload), 256));
    IF @@autocommit = 1 AND @@in_transaction = 0 THEN
        {_refuse("'a change needs a transaction: begin one, or turn autocommit off'", NOT_IN_TRANSACTION)};
    END IF;

    SET is_later = COALESCE(the_not_before > UTC_TIMESTAMP(6), FALSE);
    attempt: LOOP
        SET failed = 0;
        {change_recorder.SAVE};
        BEGIN
            DECLARE EXIT HANDLER FOR SQLEXCEPTION
            BEGIN
                BEGIN
                    -- After a deadlock the whole transaction is gone, and its savepoint.
                    DECLARE CONTINUE HANDLER FOR {_NO_SAVEPOINT} BEGIN END;
                    {change_recorder.ROLL_BACK};
                END;
                RESIGNAL;
            END;
            DECLARE EXIT HANDLER FOR {DUPLICATE_KEY}
            BEGIN
                {change_recorder.ROLL_BACK};
                SET failed = {DUPLICATE_KEY};
            END;
            DECLARE EXIT HANDLER FOR {NULL_REFUSED}
            BEGIN
                {change_recorder.ROLL_BACK};
                SET failed = {NULL_REFUSED};
            END;
            DECLARE EXIT HANDLER FOR {CHECK_VIOLATED}
            BEGIN
                {change_recorder.ROLL_BACK};
                {_refuse(_literal(str(shadow.state_too_large())))};
            END;
            IF is_later THEN
                {_filled(change_recorder.TAKE_KEY, *_OF_KEY, "TRUE")};
                {_filled(change_recorder.SCHEDULE_ONE, *_SUBMITTED, "the_not_before", "the_not_before", "the_host")};
                SET the_row_id = LAST_INSERT_ID();
            ELSE
                {_of_either(lambda of: _filled(of.lock, *_key_of(of)))};
                {_filled(change_recorder.TAKE_KEY, *_OF_KEY, "FALSE")};
                {_filled(change_recorder.INSERT_ONE, *_SUBMITTED, *_OF_CLASS)};
                SET the_row_id = LAST_INSERT_ID();
                {_of_either(_write)};
            END IF;
            {_filled(change_recorder.KEY_HAS_ROW, "the_row_id", *_OF_KEY)};
        END;
        -- Due by now, or the host is unknown.
        IF failed <> {NULL_REFUSED} OR NOT is_later THEN
            LEAVE attempt;
        END IF;
        SET is_later = FALSE;
    END LOOP;

    IF failed = {NULL_REFUSED} THEN
        SELECT GROUP_CONCAT(DISTINCT host ORDER BY host SEPARATOR ', ') INTO part FROM event_rules;
        SET part = CONCAT('''', the_host, ''', only ', COALESCE(part, 'none'));
        {_refuse("CONCAT('host: the database knows no host ', part)", UNKNOWN_HOST)};
    END IF;
    IF failed = {DUPLICATE_KEY} THEN
        SET the_row_id = NULL, is_later = FALSE;
        {_filled(_into(change_recorder.ROW_OF_KEY, "is_later", "the_row_id"), *_OF_KEY)};
    END IF;
    IF is_later THEN
        {_filled(_into(change_recorder.SCHEDULE_OF_ID, *_SCHEDULED_ROW), "the_row_id")};
    ELSE
        {_filled(_into(change_recorder.CHANGE_OF_ID, *_CHANGE_ROW), "the_row_id")};
    END IF;
    IF first_hash IS NULL THEN
        {_filled(_into(change_recorder.CHANGE_OF_KEY, *_CHANGE_ROW), *_OF_KEY)};
    END IF;
    IF NOT first_hash <=> the_hash THEN
        SET part = ' was used for another change; use a new key for a new change';
        {_refuse("CONCAT('idempotency key ', the_idempotency_key, part)", CONFLICT)};
    END IF;
    SELECT the_change_id AS change_id, the_schedule_id AS scheduled_id, the_idempotency_key AS idempotency_key,
        the_class AS priority_class, accepted_at,
        IF(the_schedule_id IS NULL, '{change_recorder.PENDING}',
            IF(ended_at IS NULL, '{change_recorder.SCHEDULED}', '{change_recorder.CANCELLED}')) AS sync_status,
        failed = {DUPLICATE_KEY} AS duplicate, the_outcome AS outcome, the_nonce AS nonce;
END
"""


def install_procedures(connection: Connection) -> None:
    """Those of this release, in place of any other's; the rights to call them stay."""
    for statement in (_JSON, _MOMENT, _RECORD):
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
