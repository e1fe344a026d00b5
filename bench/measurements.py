"""All measurements by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from bench import (
    activations,
    batch_route,
    burst,
    busy,
    emergency,
    hosts,
    idle,
    kill,
    lost_replies,
    machine_cost,
    peak,
    reply_timeout,
    session_rate,
    skew,
    waiting,
)
from bench.result import Result
from bench.stage import Stage

MEASUREMENTS: dict[str, Callable[[Stage], Result]] = {
    "machine": machine_cost.measure,
    "activations": activations.measure,
    "session": session_rate.measure,
    "idle": idle.measure,
    "busy": busy.measure,
    "emergency": emergency.measure,
    "burst": burst.measure,
    "batch": batch_route.measure,
    "kill": kill.measure,
    "lost": lost_replies.measure,
    "reply-timeout": reply_timeout.measure,
    "peak": peak.measure,
    "waiting": waiting.measure,
    "skew": skew.measure,
    "hosts": hosts.measure,
}
