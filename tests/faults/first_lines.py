"""What a person on call reads first, in the commonest outages: one word, one cause and one next step, which stay the
same for a minute while the product tries again and again.
"""

from __future__ import annotations

import re
import signal
import time
from typing import Any

from temporalio.client import Client

from tests.faults.other_deployment import MAKE_CURRENT, make_version, temporal
from tests.faults.product import Product
from tests.faults.scene import Figures, after, begin, insert, outstanding

WATCHED_SECONDS = 60.0
POLL_SECONDS = 1.0
WORK = [("EMERGENCY", "locked-out"), ("TXN", "booked"), ("LWW", "cleaned")]


def first_line(product: Product) -> dict[str, Any]:
    status, told = product.api.call("GET", "/api/situation")
    assert status == 200, told
    return told


def is_listed_so(product: Product, told: dict[str, Any]) -> bool:
    """Whether the list of hosts says the same; figures may have grown."""
    status, listed = product.api.call("GET", "/api/hosts")
    assert status == 200, listed
    (line,) = listed["hosts"]
    return (line["state"], _kind(line["why"])) == (told["word"], _kind(told["why"]))


def _kind(sentence: str) -> str:
    return re.sub(r"\d+", "#", sentence)


def until_said(product: Product, words: str, seconds: float = 90.0) -> float:
    """Until the first line has these words; returns the seconds that it took."""
    began = time.monotonic()
    while words not in str(told := first_line(product)):
        assert time.monotonic() - began < seconds, told
        product.wait_for("the next look", after(POLL_SECONDS))
    return time.monotonic() - began


def the_same_for_a_minute(product: Product) -> dict[str, Any]:
    """The first line, which is read every second; figures in it may grow."""
    until, said = time.monotonic() + WATCHED_SECONDS, dict[tuple[str, ...], dict[str, Any]]()
    while time.monotonic() < until:
        told = first_line(product)
        said[told["word"], _kind(told["why"]), told["next_step"]] = told
        product.wait_for("the next look", after(POLL_SECONDS))
    assert len(said) == 1, "\n".join(map(str, said))
    told = next(iter(said.values()))
    assert is_listed_so(product, told), told
    return told


def host_that_resets(product: Product) -> Figures:
    """OldHost accepts each connection and resets it."""
    begin(product)
    product.fault("drop_before", reset=True, on="any")
    insert(product, WORK)
    until_said(product, "although some could be sent (connection:")
    told = the_same_for_a_minute(product)
    assert (told["word"], told["tone"]) == ("WAITING", "bad"), told
    product.no_faults()
    return {
        "said": told["why"],
        "all sent after": round(product.wait_for("all", lambda: not outstanding(product), 90), 1),
    }


def frozen_worker(product: Product) -> Figures:
    """The only worker stands still (SIGSTOP), and goes on."""
    begin(product)
    worker = product.children["worker"]
    worker.send_signal(signal.SIGSTOP)
    try:
        insert(product, WORK)
        noticed = until_said(product, "is silent since")
        told = the_same_for_a_minute(product)
    finally:
        worker.send_signal(signal.SIGCONT)
    assert told["word"] == "NO WRITER", told
    assert told["next_step"].startswith("Restart worker"), told
    assert "terminate" not in told["next_step"], told
    sent = product.wait_for("all sent", lambda: not outstanding(product), 120)
    return {"noticed after": round(noticed, 1), "said": told["why"], "all sent after": round(sent, 1)}


def stopped_worker(product: Product) -> Figures:
    """The only worker is stopped in order, and another is started a minute later."""
    begin(product)
    product.children["worker"].send_signal(signal.SIGTERM)
    assert product.children["worker"].wait(30) == 0
    insert(product, WORK)
    noticed = until_said(product, "No worker is at work")
    told = the_same_for_a_minute(product)
    assert (told["word"], told["next_step"]) == ("NO WRITER", "Start a worker: `oldhost-sync worker`."), told
    product.start_worker("second")
    sent = product.wait_for("all sent", lambda: not outstanding(product), 90)
    assert "strays" not in product.open_alerts(), product.open_alerts()
    return {"noticed after": round(noticed, 1), "said": told["why"], "all sent after": round(sent, 1)}


def long_ban(product: Product) -> Figures:
    """OldHost's ban lasts six times as long as the product reckons with."""
    begin(product)
    product.admin("POST", "/actions/ban", {"seconds": 6 * product.settings.ban_seconds})
    insert(product, WORK)
    until_said(product, "BANNED")
    told = the_same_for_a_minute(product)
    assert told["word"] == "BANNED", told
    sent = product.wait_for("all sent", lambda: not outstanding(product), 6 * product.settings.ban_seconds)
    return {"said": told["why"], "all sent after": round(sent, 1)}


def many_emergencies(product: Product) -> Figures:
    """152 emergencies within a moment, of as many units: OldHost takes 2.5 a second."""
    begin(product)
    insert(product, [("EMERGENCY", f"unit-{number}") for number in range(152)])
    until_said(product, "AT RISK", 20)
    told = first_line(product)
    assert re.match(r"\d+ of \d+ emergencies will be late", told["why"]), told
    product.wait_for("an incident", lambda: "emergency-late" in product.open_alerts(), 60)
    (late,) = product.sql("SELECT message FROM alerts WHERE kind = 'emergency-late'")
    assert "others were sent first" in late["message"], late
    return {"said": told["why"], "the alert": late["message"]}


def other_deployment(product: Product) -> Figures:
    """A person makes a version of another worker deployment current for our task queue; its worker is gone. The command
    that the first line tells brings the tasks back.
    """
    begin(product)

    async def divert(client: Client) -> None:
        await make_version(client)
        await temporal(product.temporal_address, MAKE_CURRENT)

    product.ask(divert)
    insert(product, WORK)
    noticed = until_said(product, "of the worker deployment 'theirs'")
    told = the_same_for_a_minute(product)
    assert told["word"] == "NO WRITER", told
    assert "terminate" not in told["next_step"], told
    command = told["next_step"].split("`")[1].removeprefix("temporal ")
    product.ask(lambda _: temporal(product.temporal_address, f"{command} --yes"))
    sent = product.wait_for("all sent", lambda: not outstanding(product), 120)
    return {"noticed after": round(noticed, 1), "said": told["why"], "next": told["next_step"], "sent": round(sent, 1)}
