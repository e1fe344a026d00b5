"""The options of a host that is reached by HTTP and is not OldHost's kind; every mistake is named with its key.

number = { in = "header", name = "X-Seq" }     # or { in = "body", name = "seq" }, or { in = "path" }: see `NumberPlace`
question = "/units/next"                       # where the expected number is asked for
date = { header = "X-Time", form = "seconds" } # or "http"
sign = { over = ["method", "path", "number", "date", "body"], header = "X-Signature" }  # algorithm, form, prefix
rejection_uses = "yes"                         # its number: yes, no, or says (the answer, or the count)
repeated = "punished"                          # claims, as in `Capabilities`
proves = "used"                                # the expected number: that all before are used, or applied
[[answers]]                                    # without any: OldHost's
is = "applied"
status = [200, 201]
where = { "/ok" = true }
number = "/seq"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import combinations
from typing import Any

from oldhost_sync.drivers.capabilities import OLDHOST, Capabilities, Expects, RejectionUses, Repeats
from oldhost_sync.drivers.contract import InvalidOptions
from oldhost_sync.drivers.http.patterns import MEANINGS, OF_OPERATIONS, OF_QUESTIONS, Pattern, Patterns, is_same
from oldhost_sync.drivers.http.requests import (
    ALGORITHMS,
    OLDHOST_QUESTION,
    PARTS,
    Date,
    NumberPlace,
    Requests,
    Signature,
)
from oldhost_sync.drivers.mapping import POINTER

Key = tuple[str, ...]
Mistake = tuple[Key, str]
Check = Callable[[Any], str]

ANSWERS_MAX = 40
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
# What a request has anyway, and what would change how it is read.
_TAKEN = frozenset(
    {"host", "authorization", "content-type", "content-length", "transfer-encoding", "connection", "expect", "upgrade"}
    | {"te", "trailer", "accept", "cache-control", "proxy-authorization"}
)
_PATH = re.compile(r"(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)+(\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*)?")
_MEMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_PREFIX = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,31}")


def read_options(options: Mapping[str, Any]) -> tuple[Requests, Patterns | None, Capabilities]:
    """How requests are written, what answers mean (None: as OldHost's), and what the host can do. InvalidOptions."""
    mistakes = list(_mistakes(options))
    if mistakes:
        raise InvalidOptions(mistakes)
    number = options.get("number", {"in": "header", "name": "X-Nonce"})
    date, sign = options.get("date"), options.get("sign")
    requests = Requests(
        NumberPlace(number["in"], number.get("name", "")),
        options.get("question", "" if "answers" in options else OLDHOST_QUESTION),
        Date(**date) if date else None,
        Signature(**{**sign, "over": tuple(sign["over"])}) if sign else None,
    )
    if "answers" not in options:
        return requests, None, OLDHOST
    patterns = tuple(map(_pattern, options["answers"]))
    uses = RejectionUses(options.get("rejection_uses", RejectionUses.SAYS))
    claims = Capabilities(
        expected=Expects(options.get("proves", Expects.USED)) if requests.question else Expects.NEVER,
        repeated=Repeats(options.get("repeated", Repeats.DONE_TWICE)),
        rejection_uses=uses,
    )
    decided = {RejectionUses.YES: True, RejectionUses.NO: False}
    return requests, Patterns(patterns, decided.get(uses)), claims


def _mistakes(options: Mapping[str, Any]) -> Iterator[Mistake]:
    found = [*_of_table((), options, _OPTIONS)]
    for key, (checks, needed) in _TABLES.items():
        if isinstance(options.get(key), dict):
            found += _of_table((key,), options[key], checks, needed)
    yield from found or _of_relations(options)
    if isinstance(answers := options.get("answers"), list) and answers:
        found = list(_of_each_answer(answers))
        yield from found or _of_answers(answers, has_question="question" in options)


def _of_relations(options: Mapping[str, Any]) -> Iterator[Mistake]:
    number, sign = options.get("number", {}), options.get("sign", {})
    if number.get("in") in {"header", "body"} and (
        why := (_header if number["in"] == "header" else _member)(number.get("name"))
    ):
        yield ("number", "name"), why
    headers = {
        "number.name": number.get("name") if number.get("in") == "header" else None,
        "date.header": options.get("date", {}).get("header"),
        "sign.header": sign.get("header"),
    }
    for (one, name), (other, same) in combinations([each for each in headers.items() if each[1]], 2):
        if str(name).lower() == str(same).lower():
            yield tuple(other.split(".")), f"is {one}, too"
    if sign and "date" in sign["over"] and "date" not in options:
        yield ("sign", "over"), "has the date, and no date is sent"
    claims = [key for key in ("rejection_uses", "repeated", "proves") if key in options]
    if claims and "answers" not in options:
        yield (claims[0],), "is for hosts whose answers are given, too"


def _of_table(
    place: Key, table: Mapping[str, Any], checks: Mapping[str, Check], needed: Collection[str] = ()
) -> Iterator[Mistake]:
    yield from ((place, f"{key} is missing") for key in needed if key not in table)
    for key, value in table.items():
        if key not in checks:
            yield (*place, key), f"there is no such option: there are {', '.join(checks)}"
        elif why := checks[key](value):
            yield (*place, key), why


def _of_each_answer(answers: list[Any]) -> Iterator[Mistake]:
    for place, answer in ((("answers", str(number)), answer) for number, answer in enumerate(answers, start=1)):
        if not isinstance(answer, dict) or answer.get("is") not in list(MEANINGS):
            yield (*place, "is"), f"must be one of {', '.join(MEANINGS)}"
            continue
        may, must = MEANINGS[answer["is"]]
        checks = {"is": _anything, "status": _status, "where": _where, **dict.fromkeys(may, _pointer)}
        yield from _of_table(place, answer, checks, ("status", *must))
        is_yes = answer["is"] in {"applied", "expected"}
        status = answer.get("status", 200)
        if is_yes and not _status(status) and not all(200 <= one < 300 for one in _statuses(status)):
            yield (*place, "status"), f"is never {answer['is']}: only from 200 to 299 a host says yes"
        if answer["is"] == "applied" and not {"where", "number"} & answer.keys():
            yield place, "needs where or number: a log-in page has the same status"


def _of_answers(answers: list[dict[str, Any]], *, has_question: bool) -> Iterator[Mistake]:
    meanings = [answer["is"] for answer in answers]
    if "applied" not in meanings:
        yield ("answers",), "none of them is applied"
    if has_question and "expected" not in meanings:
        yield ("question",), "none of the answers is expected"
    if "expected" in meanings and not has_question:
        yield ("answers", str(meanings.index("expected") + 1)), "is expected, and there is no question"
    for (first, one), (second, other) in combinations(enumerate(map(_pattern, answers), start=1), 2):
        if one.meaning != other.meaning and _overlap(one, other):
            yield ("answers", str(second)), f"is {other.meaning}, and fits answers of {first}, {one.meaning}, too"


def _overlap(one: Pattern, other: Pattern) -> bool:
    """Whether an answer to one request can fit both."""
    meanings = {one.meaning, other.meaning}
    if not (meanings <= OF_OPERATIONS or meanings <= OF_QUESTIONS) or not one.status & other.status:
        return False
    values = dict(other.where)
    return all(pointer not in values or is_same(values[pointer], value) for pointer, value in one.where)


def _pattern(answer: Mapping[str, Any]) -> Pattern:
    named = {key: answer[key] for key in ("number", "expected", "seconds", "reason") if key in answer}
    where = tuple(answer.get("where", {}).items())
    return Pattern(answer["is"], frozenset(_statuses(answer["status"])), where, **named)


def _statuses(status: Any) -> list[int]:
    return status if isinstance(status, list) else [status]


# --------------------------------------------------------------------------------- what is wrong with a value, or empty


def _anything(value: Any) -> str:  # noqa: ARG001 - checked elsewhere
    return ""


def _one_of(*allowed: str) -> Check:
    return lambda value: "" if value in allowed else f"must be one of {', '.join(allowed)}"


def _like(pattern: re.Pattern[str], what: str) -> Check:
    return lambda value: "" if isinstance(value, str) and pattern.fullmatch(value) else f"must be {what}"


def _header(value: Any) -> str:
    if not isinstance(value, str) or not _HEADER.fullmatch(value):
        return "must be a header's name"
    return "is a header that requests have anyway" if value.lower() in _TAKEN else ""


def _status(value: Any) -> str:
    given = _statuses(value)
    fits = all(type(one) is int and 200 <= one <= 599 for one in given)
    return "" if given and fits else "must be a status from 200 to 599, or a list of them"


def _where(value: Any) -> str:
    if not isinstance(value, dict) or not value or any(map(_pointer, value)):
        return 'must be a table of JSON pointers and values, such as { "/ok" = true }'
    return (
        ""
        if all(isinstance(one, str | int) for one in value.values())
        else "has a value that is no text, whole number or bool"
    )


def _over(value: Any) -> str:
    if not isinstance(value, list) or not value or any(part not in PARTS or value.count(part) > 1 for part in value):
        return f"must be a list of some of {', '.join(PARTS)}"
    return "" if "number" in value or "path" in value or "body" in value else "signs nothing of the operation"


def _a_table(value: Any) -> str:
    return "" if isinstance(value, dict) else "must be a table"


def _answers(value: Any) -> str:
    fits = isinstance(value, list) and 1 <= len(value) <= ANSWERS_MAX
    return "" if fits else f"must be 1 to {ANSWERS_MAX} tables"


_member = _like(_MEMBER, "the name of a member")
_pointer = _like(POINTER, "a JSON pointer, such as /next")
_OPTIONS: dict[str, Check] = {
    "number": _a_table,
    "question": _like(_PATH, "a path, such as /units/next"),
    "date": _a_table,
    "sign": _a_table,
    "rejection_uses": _one_of(*RejectionUses),
    "repeated": _one_of(*Repeats),
    "proves": _one_of(Expects.USED, Expects.APPLIED),
    "answers": _answers,
}
_TABLES: dict[str, tuple[dict[str, Check], tuple[str, ...]]] = {
    "number": ({"in": _one_of("header", "body", "path"), "name": _anything}, ("in",)),
    "date": ({"header": _header, "form": _one_of("seconds", "http")}, ("header",)),
    "sign": (
        {
            "over": _over,
            "header": _header,
            "algorithm": _one_of(*ALGORITHMS),
            "form": _one_of("hex", "base64"),
            "prefix": _like(_PREFIX, "some printable ASCII"),
        },
        ("over", "header"),
    ),
}
