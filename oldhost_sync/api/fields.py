"""The parsers of fields as types of models and query parameters, with their part of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from oldhost_sync.fields.scalar import (
    InvalidField,
    read_decimal,
    read_flag,
    read_id,
    read_json_whole,
    read_key,
    read_label,
    read_moment,
    read_name,
    read_whole,
)
from oldhost_sync.policy import limits
from oldhost_sync.store.record import complete_schema

# The kind of error whose words are the parser's; `FIELD` in them stands for the field's name.
OWN_WORDS = "field"
FIELD = "{field}"


def _by(parser: Callable[..., Any], *rest: Any, texts_only: bool = False) -> BeforeValidator:
    """`texts_only`: a default, or a value that the framework has converted, is taken as it is."""

    def read(value: object) -> Any:
        if value is None or (texts_only and not isinstance(value, str)):
            return value
        try:
            return parser(FIELD, value, *rest)
        except InvalidField as error:
            raise PydanticCustomError(OWN_WORDS, "{message}", {"message": str(error)}) from None

    return BeforeValidator(read)


# The characters that Python calls printable, and those that are no control characters.
_PRINTABLE = r"^[\p{L}\p{M}\p{N}\p{P}\p{S} ]+$"
_NO_CONTROLS = r"^[^\u0000-\u001f\u007f-\u009f]+$"


def _text(length_max: int, pattern: str) -> Any:
    return Field(min_length=1, max_length=length_max, json_schema_extra={"pattern": pattern})


_YEARS = "(19[7-9][0-9]|[2-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])"
assert limits.YEAR_MIN == 1970
assert limits.YEAR_MAX == 9998
MOMENT_SCHEMA = {
    "type": "string",
    "format": "date-time",
    "pattern": f"^{_YEARS}{limits.MOMENT_PATTERN.removeprefix('[0-9]{4}')}$",
    "description": f"RFC 3339 with an offset, in a year from {limits.YEAR_MIN} to {limits.YEAR_MAX}; microseconds "
    "at most, further digits are cut.",
}

Moment = Annotated[datetime, _by(read_moment), WithJsonSchema(MOMENT_SCHEMA)]
Name = Annotated[str, Field(pattern=f"^{limits.NAME_PATTERN}$"), _by(read_name)]
Id = Annotated[str, _text(limits.ID_LENGTH_MAX, _PRINTABLE), _by(read_id)]
# Of what is recorded: it may be derived from the key that was given.
RecordedKey = Annotated[str, _by(read_key, limits.IDEMPOTENCY_KEY_LENGTH_MAX)]
Key = Annotated[str, Field(pattern=f"^{limits.KEY_PATTERN}$", max_length=limits.KEY_LENGTH_MAX), _by(read_key)]
UnitStatusText = Annotated[
    str, _text(limits.UNIT_STATUS_LENGTH_MAX, _NO_CONTROLS), _by(read_label, limits.UNIT_STATUS_LENGTH_MAX)
]
UnitNameText = Annotated[
    str, _text(limits.UNIT_NAME_LENGTH_MAX, _NO_CONTROLS), _by(read_label, limits.UNIT_NAME_LENGTH_MAX)
]

# Validators for query parameters and paths, where everything is text. In an `Annotated` they follow the `Field` with
# the bounds: only so are those in the OpenAPI document.
WHOLE = _by(read_whole, texts_only=True)
DECIMAL = _by(read_decimal, texts_only=True)
FLAG = _by(read_flag, texts_only=True)
# A form sends an empty text for an empty field. It comes last in an `Annotated`: then it is asked first.
BLANK_IS_NONE = BeforeValidator(lambda value: None if value == "" else value)
# For a number in a JSON body.
JSON_WHOLE = _by(read_json_whole)
RowId = Annotated[int, Field(ge=1, le=limits.INTEGER_MAX), WHOLE]


class AnswerBody(BaseModel):
    """What only the API answers with; other answers are records of the store. An `EXAMPLE` stands beside its fields."""

    model_config = ConfigDict(json_schema_extra=complete_schema)
