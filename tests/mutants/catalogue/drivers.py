"""Wrong ideas about drivers: what a connection hears and believes, and what the kit overlooks."""

from __future__ import annotations

from tests.mutants.levels import CONFORMANCE, DRIVER_KIT, DRIVERS, UNIT
from tests.mutants.mutant import Mutant, Patch

CONNECTION = "oldhost_sync/oldhost/connection.py"
CHOICE = "oldhost_sync/driver_choice.py"
CLAIMS = "oldhost_sync/drivers/claims.py"
DRIVER_TESTS = "oldhost_sync/driver_kit/driver_tests.py"
SESSION_TESTS = "oldhost_sync/driver_kit/session_tests.py"
PURITY = "oldhost_sync/driver_kit/purity.py"
RESPONSE = "oldhost_sync/drivers/http/response.py"
OLDHOST = "oldhost_sync/drivers/http/oldhost.py"

MUTANTS = (
    Mutant(
        "what a driver wants written during an exchange is not",
        (
            Patch(
                CONNECTION,
                "            for event in events:\n                if isinstance(event, Write):\n                    self._write(",
                "            for event in events:\n                if False:\n                    self._write(",
            ),
        ),
        levels=(DRIVERS,),
    ),
    Mutant(
        "an answer has no limit",
        (Patch(CONNECTION, "if len(heard) > self._answer_bytes_max:", "if False:"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a second answer belongs to the same request",
        (
            Patch(
                CONNECTION,
                "event.ending if isinstance(event, Closing) else ConnectionEnd.STRAY",
                "event.ending if isinstance(event, Closing) else ConnectionEnd.NONE",
            ),
        ),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a driver that fails ends the send with its own error",
        (
            Patch(
                CONNECTION,
                "        except Exception as error:\n            raise Unreadable(",
                "        except ZeroDivisionError as error:\n            raise Unreadable(",
            ),
        ),
        levels=(DRIVERS,),
    ),
    Mutant(
        "every driver hears what comes unasked",
        (
            Patch(
                CONNECTION,
                "if not (self._speaks_unasked and self._take_unasked(self._socket, data)):",
                "if not self._take_unasked(self._socket, data):",
            ),
        ),
        levels=(DRIVERS,),
    ),
    Mutant(
        "an answer that nobody asked for is a sign of life",
        (Patch(CONNECTION, "return all(isinstance(event, Working | Write) for event in events)", "return True"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a good-bye is said in the middle of an exchange",
        (Patch(CONNECTION, "if self._until is None and (bye := self.wire.bye(self.at_ms())):", "if bye := self.wire.bye(self.at_ms()):"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a driver for another contract is used",
        (Patch(CHOICE, "if driver.api != API:", "if False:"),),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a driver gets any address",
        (
            Patch(
                "oldhost_sync/host_settings.py",
                "if self.url is not None and parse_address(self.url).scheme not in schemes:",
                "if False:",
            ),
        ),
        levels=(DRIVERS,),
    ),
    Mutant(
        "a host that can't be asked tells what it expects",
        (Patch(CONNECTION, "            if why := undeclared(event, self._capabilities):\n", '            if why := "":\n'),),
        levels=(UNIT,),
    ),
    Mutant(
        "a host that never refuses a repeated number does",
        (Patch(CLAIMS, "        case Replay() if capabilities.repeated is Repeats.DONE_TWICE:\n", "        case Replay() if False:\n"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "a cut answer is read as far as it came",
        (Patch(RESPONSE, "        if not (self._has_head and self._ends_with_connection):\n", "        if not self._has_head:\n"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "a count is anything with a count",
        (Patch(OLDHOST, '        if not host_json.is_whole(said) or "nonce" in fields:\n', "        if not host_json.is_whole(said):\n"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "a count of any size is told",
        (Patch("oldhost_sync/drivers/host_json.py", "and 0 <= value <= NONCE_MAX else None", "else None"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit takes a cut rejection for harmless",
        (Patch(DRIVER_TESTS, "isinstance(event, Unlisted | NoService | Working", "isinstance(event, Applied | Rejected | Unlisted | NoService | Working"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit reads only a driver's first module",
        (Patch(PURITY, "                    waiting.append(imported)\n", "                    pass\n"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the very first session forgets in which of the host's starts it began",
        (Patch("oldhost_sync/store/ledger/maria_ledger.py", "(expected, expected - 1, incarnation, self._host)", '(expected, expected - 1, "", self._host)'),),
        levels=(CONFORMANCE,),
    ),
    Mutant(
        "the kit takes an operation that is done twice for right",
        (Patch(SESSION_TESTS, "rested.done.count(body) > 1]", "rested.done.count(body) > 9]"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "a process of the kit's is never killed",
        (Patch("oldhost_sync/driver_kit/virtual_host.py", "self.steps == self._kill_at", "self.steps < 0"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit takes a changed byte for the same answer",
        (Patch(DRIVER_TESTS, "if _proves(event) and event not in sample.events]", "if False]"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit lets two numbers be the same on the wire",
        (Patch(DRIVER_TESTS, "check(same == number,", "check(True,"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit does not ask for the host's words",
        (Patch(DRIVER_TESTS, "check(read.said is not None,", "check(True,"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit lets any sample say that it names no number",
        (Patch(DRIVER_TESTS, "check(is_ours,", "check(True,"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit believes what is said of a repeated number",
        (Patch(SESSION_TESTS, "        check(is_so,", "        check(True,"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit believes where numbers wrap",
        (Patch(SESSION_TESTS, "check(said <= {number},", "check(True,"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit believes what is said of a number that is too high",
        (Patch(SESSION_TESTS, "check(is_done is not can.gapless,", "check(True,"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit believes what is said of rejections",
        (Patch(SESSION_TESTS, "check(said in (None, after) and is_applied(events),", "check(True,"),),
        levels=(DRIVER_KIT,),
    ),
    Mutant(
        "the kit lets an answer belong to any number",
        (Patch(SESSION_TESTS, "check(not is_applied(read),", "check(True,"),),
        levels=(DRIVER_KIT,),
    ),
)  # fmt: skip
