"""Wrong ideas about hosts with an HTTP API of their own: their answers, numbers, signatures and paths."""

from __future__ import annotations

from tests.mutants.levels import DRIVERS, HTTP_OPTIONS, MAPPING_UNIT, UNITS_HOST
from tests.mutants.mutant import Mutant, Patch

OPTIONS = "oldhost_sync/drivers/http/options.py"
PATTERNS = "oldhost_sync/drivers/http/patterns.py"
REQUESTS = "oldhost_sync/drivers/http/requests.py"
MAPPING = "oldhost_sync/drivers/mapping.py"

MUTANTS = (
    Mutant(
        "a 4xx may be called applied",
        (Patch(OPTIONS, "not all(200 <= one < 300 for one in _statuses(status))", "not all(200 <= one < 500 for one in _statuses(status))"),),
        levels=(HTTP_OPTIONS,),
    ),
    Mutant(
        "a status alone may be called applied",
        (Patch(OPTIONS, 'if answer["is"] == "applied" and not {"where", "number"} & answer.keys():', "if False:"),),
        levels=(HTTP_OPTIONS,),
    ),
    Mutant(
        "patterns of different meaning may fit the same answer",
        (Patch(OPTIONS, "if one.meaning != other.meaning and _overlap(one, other):", "if False:"),),
        levels=(HTTP_OPTIONS,),
    ),
    Mutant(
        "a web page may fit a pattern",
        (Patch(PATTERNS, 'if body.lstrip()[:1] == b"<":', "if False:"),),
        levels=(HTTP_OPTIONS,),
    ),
    Mutant(
        "an answer to another number is ours",
        (Patch(PATTERNS, "if pattern.number and (said := host_json.number(_at(fields, pattern.number))) != number:", "if pattern.number and (said := host_json.number(_at(fields, pattern.number))) is None:"),),
        levels=(HTTP_OPTIONS, UNITS_HOST),
    ),
    Mutant(
        "1 is taken for true",
        (Patch(PATTERNS, "type(value) is type(wanted) and value == wanted", "value == wanted"),),
        levels=(HTTP_OPTIONS, UNITS_HOST),
    ),
    Mutant(
        "a number has no place if the path has none for it",
        (Patch(REQUESTS, 'if self.number.where == "path" and _HOLE not in path:', "if False:"),),
        levels=(HTTP_OPTIONS, UNITS_HOST),
    ),
    Mutant(
        "the path is signed without the URL's own",
        (Patch(REQUESTS, "        signed = self._signed(method, path,", "        signed = self._signed(method, path.removeprefix(peer.base),"),),
        levels=(HTTP_OPTIONS, UNITS_HOST),
    ),
    Mutant(
        "a value in a path may be several segments",
        (Patch(MAPPING, 'quote(text, safe="")', "quote(text)"),),
        levels=(MAPPING_UNIT,),
    ),
    Mutant(
        "a value in a path may be a step upwards",
        (Patch(MAPPING, 'text in {"", ".", ".."}', 'text == ""'),),
        levels=(MAPPING_UNIT,),
    ),
    Mutant(
        "the same body at another path is a no-op",
        (Patch(MAPPING, '"at": [rule.method, place], ', ""),),
        levels=(MAPPING_UNIT, UNITS_HOST),
    ),
    Mutant(
        "the host's words with our credentials are shown",
        (Patch("oldhost_sync/oldhost/connection.py", "                return self._without_secrets(reply, heard)\n", "                return reply\n"),),
        levels=(DRIVERS,),
    ),
)  # fmt: skip
