"""Wrong ideas about frames: whose answer it is, where it ends, and what a host claims."""

from __future__ import annotations

from tests.mutants.levels import DRIVERS
from tests.mutants.mutant import Mutant, Patch

ANSWERS = "oldhost_sync/drivers/frame/answers.py"
FRAMES = "oldhost_sync/drivers/frame/frames.py"
WIRE = "oldhost_sync/drivers/frame/wire.py"
DRIVER = "oldhost_sync/drivers/frame/driver.py"

MUTANTS = (
    Mutant(
        "a frame about another number is ours",
        (Patch(ANSWERS, "            if answered != number:\n", "            if answered is None:\n"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "another operation's outcome is ours",
        (Patch(ANSWERS, "is_ours = told == number", "is_ours = True"),
         Patch(ANSWERS, 'is_ours = fields.get("key") == key', "is_ours = True")),
        levels=(DRIVERS,),
    ),
    Mutant(
        "half a frame and the end is no answer, and nothing is wrong",
        (Patch(WIRE, "        if self._asked is not Asked.NOTHING:\n            raise Garbled", "        if False:\n            raise Garbled"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a frame may be as long as it says",
        (Patch(FRAMES, "if not 0 < length <= FRAME_BYTES_MAX:", "if not 0 < length:"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "bytes behind an answer are the next one's",
        (Patch(WIRE, "events += self._close(ConnectionEnd.STRAY)", "pass"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "what a host expects is believed though it can't be asked",
        (Patch(ANSWERS, "if named is None or self.capabilities.expected is Expects.NEVER:", "if named is None:"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a rejection that does not say so has used its number",
        (Patch(ANSWERS, 'used = fields.get("used", declared)', 'used = fields.get("used", declared is not False)'),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a rejection may use its number though the host claims otherwise",
        (Patch(ANSWERS, "isinstance(used, bool) and declared in (None, used)", "isinstance(used, bool)"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "numbers that wrap are followed by the next higher",
        (Patch(ANSWERS, "self.capabilities.lowest if number + 1 == self.capabilities.modulus else number + 1", "number + 1"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "of numbers that wrap the higher is the later",
        (Patch(ANSWERS, "        if modulus is None:\n            return expected > number", "        if True:\n            return expected > number"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "an answer to an operation is a count",
        (Patch(ANSWERS, 'fields.get("type") != "expected" or "number" in fields', '"expected" not in fields'),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a host that does operations twice may call a number used",
        (Patch(ANSWERS, 'case "used" if can.repeated is not Repeats.DONE_TWICE:', 'case "used":'),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a line break in an operation's bytes ends them",
        (Patch(FRAMES, 'line + b"\\n" + body if body', 'line + b"\\n" + body.split(b"\\n")[0] if body'),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a modulus may leave as few numbers as may be in doubt",
        (Patch(DRIVER, "modulus - lowest < NUMBERS_MIN", "modulus - lowest < 2"),),
        levels=(DRIVERS,),
    ),
)  # fmt: skip
