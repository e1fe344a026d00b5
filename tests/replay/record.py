"""Records the histories that the replay tests play again: `python -m tests.replay.record [name ...]`.

Record anew only when the writer's behaviour was changed on purpose, in a new release of the decisions; otherwise a
failing replay says that running writers would be stopped by the new code.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from temporalio.client import WorkflowUpdateFailedError

from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.policy.tuning import WriterPolicy
from tests.time_skipping import start_time_skipping
from tests.workflows.books import Reply
from tests.workflows.conftest import (
    EMERGENCY,
    LWW,
    TXN,
    Stage,
    Writer,
    report_failed_by_hand,
    session_given_up,
    start_run,
    two_sends_given_up,
)
from workflows import messages

HISTORIES = Path(__file__).parent / "histories"


async def answered(writer: Writer, unit: str, reply: Reply) -> None:
    """A TXN change that OldHost answers so."""
    ref = await writer.world.accept(TXN, unit)
    writer.world.replies[ref.change_id] = [reply]
    await writer.deliver(ref)


async def peak(writer: Writer) -> None:
    """All classes on a few units; debounce, lanes, order inheritance, a rejection that holds, a lost reply."""
    for number in range(60):
        cls = EMERGENCY if number % 20 == 7 else TXN if number % 5 == 0 else LWW
        await writer.take(cls, f"unit-{number % 9}", f"state {number}")
    await answered(writer, "unit-rejected", Reply.REJECTED)
    await writer.take(TXN, "unit-rejected")
    await answered(writer, "unit-lost", Reply.LOST_AFTER)
    await writer.skip(200)
    await writer.until_quiet()


async def ban(writer: Writer) -> None:
    """A ban in the middle, changes during it, a sweep and a probe after it."""
    await answered(writer, "unit-banned", Reply.BAN)
    await writer.until(lambda: writer.world.told("ban"))
    for number in range(12):
        await writer.take((LWW, TXN, EMERGENCY)[number % 3], f"unit-{number}")
    await writer.skip(2000)
    await writer.until_quiet()


async def people(writer: Writer) -> None:
    """Operators and applications: pause, resume, flush, refused requests, submissions good and bad,
    `apply_now`, queries."""
    await writer.until_state("SENDING")
    await writer.operate("pause")
    await writer.take(EMERGENCY, "unit-1")
    with contextlib.suppress(WorkflowUpdateFailedError):
        await writer.operate("pause")
    await writer.operate("resume")
    await writer.take(LWW, "unit-2")
    await writer.operate("flush")
    change = {"entity_type": "unit", "entity_id": "unit-3", "event_type": "guest_locked_out", "payload": {"door": "x"}}
    await writer.handle.signal("submit_change", change)
    await writer.handle.signal("submit_change", "not a change")
    await writer.handle.signal("nobody_knows_this", 1)
    await writer.handle.execute_update("apply_now", change)
    await writer.skip(400)
    await writer.until_quiet()


async def faults(writer: Writer) -> None:
    """Lost and late replies, sessions that do not open, one rejection that is retried and one that is discarded."""
    writer.world.opening_fails = 3
    for unit, reply in (("a", Reply.LOST_AFTER), ("b", Reply.LATE), ("c", Reply.REJECTED), ("d", Reply.REJECTED)):
        await answered(writer, unit, reply)
    await writer.take(TXN, "c")
    await writer.skip(60)
    await writer.until_rejected(2)
    for action, change_id in zip(("retry", "discard"), writer.world.books.dead_letters(), strict=True):
        await writer.operate(action, change_id=change_id)
    await writer.until_quiet()


async def renewed(writer: Writer) -> None:
    """A new run that takes everything over in the middle of a ban (recorded: the last run, which
    begins with a snapshot)."""
    await answered(writer, "a", Reply.REJECTED)
    await writer.until_rejected()
    await writer.take(TXN, "a")
    await writer.take(LWW, "b")
    await answered(writer, "c", Reply.BAN)
    await writer.until(lambda: writer.world.told("ban"))
    await writer.handle.signal("configure", WriterPolicy(sweep_ms=200_000))
    await writer.skip(2000)
    await writer.until_quiet()


async def held(writer: Writer) -> None:
    """Changes that stay in MariaDB behind a dead letter until it is decided on."""
    await answered(writer, "a", Reply.REJECTED)
    await writer.until_rejected()
    for _ in range(3):
        await writer.take(TXN, "a")
    await writer.operate("pause")
    await writer.take(EMERGENCY, "b")
    await writer.take(LWW, "c")
    await writer.skip(30)
    await writer.operate("flush")
    await writer.operate("resume")
    await writer.operate("discard", change_id=1)
    await writer.until_quiet()


async def resolved(writer: Writer) -> None:
    """Somebody else's writes halt the writer, which is told; what is resolved is in doubt no longer."""
    await answered(writer, "a", Reply.APPLIED)
    await writer.until_quiet()
    writer.world.oldhost.foreign_write(0)
    writer.world.oldhost.foreign_write(0)
    await answered(writer, "b", Reply.LOST_BEFORE)
    await writer.skip(3600)
    await writer.until(lambda: writer.world.told("halted"))
    await writer.operate("resolve", mode="adopt")
    await writer.until_quiet()


async def urgent(writer: Writer) -> None:
    """Long sends, and emergencies that go in urgent ones beside them; a pause and a resume while they are under way."""
    await answered(writer, "a", Reply.APPLIED)
    await writer.until_quiet()
    writer.world.may_send.clear()
    for number in range(20):
        await writer.take(TXN, f"unit-{number % 12}")
    await writer.take(EMERGENCY, "unit-3")
    await writer.take(EMERGENCY, "unit-99")
    writer.world.may_send.set()
    await writer.operate("pause")
    await writer.take(EMERGENCY, "unit-4")
    await writer.operate("resume")
    await writer.skip(60)
    await writer.until_quiet()


async def turns(writer: Writer) -> None:
    """Keys that change again, TXN changes of their units in between."""
    for number in range(30):
        await writer.take(LWW, f"unit-{number}", "first")
    await writer.skip(60)
    for number in range(6):
        await writer.take(LWW, f"unit-{number}", "again")
    await writer.skip(100)
    for number in range(12):
        await writer.take(TXN, f"unit-{number}", f"booking {number}")
    await writer.until_quiet()


async def properties(writer: Writer) -> None:
    """A storm of one property, and others beside it, in the lanes while OldHost is busy."""
    await answered(writer, "first", Reply.APPLIED)
    await writer.until_quiet()
    writer.world.may_send.clear()
    for number in range(24):
        await writer.take(LWW if number % 3 else TXN, f"storm-{number}", property_id="stormy")
    for number in range(9):
        await writer.take(TXN, f"unit-{number}", property_id=f"P-{number % 3}")
    await writer.take(LWW, "no-property")
    await writer.operate("flush")
    writer.world.may_send.set()
    await writer.until_quiet()


async def carried(writer: Writer) -> None:
    """A run that takes over a snapshot, told of its own release (recorded: the last one)."""
    await answered(writer, "a", Reply.REJECTED)
    await writer.until_rejected()
    await writer.take(TXN, "a")
    for number in range(12):
        await writer.take(LWW, f"unit-{number}", property_id=f"P-{number % 3}")
    await writer.operate("pause")
    await writer.take(EMERGENCY, "b")
    await writer.handle.signal("renew", RELEASE + 1)
    await writer.skip(30)
    await writer.handle.signal("renew", RELEASE)
    await writer.operate("resume")
    await writer.operate("discard", change_id=1)
    await writer.skip(200)
    await writer.until_quiet()


async def quick(writer: Writer) -> None:
    """Sends to a quick host, and an emergency that overtakes them."""
    writer.world.oldhost.service_ms = 20.0
    for number in range(30):
        await answered(writer, f"unit-{number}", Reply.APPLIED)
    await writer.until_quiet()
    writer.world.may_send.clear()
    for number in range(60):
        await writer.take(TXN, f"unit-{number}", f"booking {number}")
    await writer.take(EMERGENCY, "unit-99")
    writer.world.may_send.set()
    await writer.until_quiet()


async def rebuilt(writer: Writer) -> None:
    """A run that rebuilds its state during a ban which is over by MariaDB's clock (recorded: that run)."""
    await answered(writer, "a", Reply.BAN)
    await writer.until(lambda: writer.world.told("ban"))
    await writer.skip(60)
    await writer.handle.terminate()
    writer.world.books.banned_until_ms -= 900_000
    writer.handle = await start_run(writer.env, writer.world)
    await writer.until_state("BANNED")
    await writer.take(EMERGENCY, "b")
    await writer.skip(1000)
    await writer.until_quiet()


async def calm(writer: Writer) -> None:
    """Long sends of LWW keys; shorter ones while TXN changes arrive; an emergency that overtakes them."""
    for number in range(40):
        await writer.take(LWW, f"unit-{number}", "first")
    writer.world.may_send.clear()
    await writer.operate("flush")
    await writer.take(EMERGENCY, "unit-99")
    writer.world.may_send.set()
    await writer.until_quiet()
    for number in range(40):
        await writer.take(LWW, f"unit-{number}", "again")
    await writer.take(TXN, "unit-1", "booking")
    await writer.operate("flush")
    await writer.until_quiet()


async def mended(writer: Writer) -> None:
    """A dead letter was decided without the writer; the next sweep ends its hold."""
    await writer.take(TXN, "a")
    await answered(writer, "b", Reply.REJECTED)
    await writer.until_rejected()
    await writer.take(TXN, "b", "held")
    writer.world.books.decide(messages.OperatorAct("oldhost", "discard", "ana", "told to", 2))
    await writer.skip(400)
    await writer.until_quiet()


async def given_up(writer: Writer) -> None:
    """A worker is taken for dead, and one of its sends reports when the next session is open."""
    await two_sends_given_up(writer)


async def by_hand(writer: Writer) -> None:
    """A person fails the activity that records what is the case."""
    await report_failed_by_hand(writer)
    await writer.take(TXN, "a")
    await writer.until_quiet()


async def ended_worker(writer: Writer) -> None:
    """A worker is said to have ended; timers are set though one of its sends is still under way."""
    await session_given_up(writer)
    await writer.take(LWW, "unit-1")
    await writer.until_status(lambda status: status["debounced"] == 1)
    writer.world.may_report.set()
    await writer.skip(200)
    await writer.until_quiet()


async def begun_anew(writer: Writer) -> None:
    """A run without a past, whose first opening fails, closes what its predecessor had told."""
    await writer.until_state("SENDING")
    writer.world.opening_fails = 10
    await answered(writer, "unit-1", Reply.LOST_BEFORE)
    await writer.skip(60)
    await writer.until(lambda: writer.world.told("no-progress"))
    await writer.handle.terminate()
    writer.world.opening_fails = 1
    writer.handle = await start_run(writer.env, writer.world)
    await writer.skip(10)
    await writer.until_quiet()


async def outlives_clocks(writer: Writer) -> None:
    """Debounce, a ban, and time between; a clock that goes back can't be played here."""
    for number in range(8):
        await writer.take((LWW, TXN)[number % 2], f"unit-{number % 3}", f"state {number}")
    await writer.skip(200)
    await answered(writer, "unit-banned", Reply.BAN)
    await writer.until(lambda: writer.world.told("ban"))
    await writer.take(EMERGENCY, "unit-1")
    await writer.skip(2000)
    await writer.until_quiet()


SCENARIOS: dict[str, Callable[[Writer], Awaitable[None]]] = {
    "peak": peak,
    "ban": ban,
    "people": people,
    "faults": faults,
    "renewed": renewed,
    "held": held,
    "resolved": resolved,
    "urgent": urgent,
    "turns": turns,
    "properties": properties,
    "carried": carried,
    "quick": quick,
    "rebuilt": rebuilt,
    "calm": calm,
    "mended": mended,
    "given_up": given_up,
    "by_hand": by_hand,
    "ended_worker": ended_worker,
    "begun_anew": begun_anew,
    "outlives_clocks": outlives_clocks,
}


def without_stack_traces(history: str) -> str:
    """They name this machine's folders and decide nothing."""
    return re.sub(r'"stackTrace": "(?:[^"\\]|\\.)*"', '"stackTrace": ""', history)


async def record(runner: asyncio.Runner, name: str) -> None:
    """Play one scenario and keep the history of its run."""
    env = await start_time_skipping()
    try:
        async with Stage(runner, env).writer(WriterPolicy()) as writer:
            await SCENARIOS[name](writer)
            history = await writer.handle.fetch_history()
            (HISTORIES / f"{name}.json").write_text(without_stack_traces(history.to_json()) + "\n")
    finally:
        await env.shutdown()


def main(names: Sequence[str] = ()) -> None:
    HISTORIES.mkdir(exist_ok=True)
    with asyncio.Runner() as runner:
        for name in names or SCENARIOS:
            runner.run(record(runner, name))
            print(f"recorded {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
