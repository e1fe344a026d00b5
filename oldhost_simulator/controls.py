"""What tests and people can read from OldHost and do to it besides its wire: the admin port's routes as functions.

Each runs in the loop's thread, takes and returns JSON values, and raises InvalidParameterError saying what is wrong.
"""

from collections.abc import Mapping
from typing import Any

from oldhost_simulator.call_handler import CallHandler
from oldhost_simulator.clock import Clock
from oldhost_simulator.counters import Counters
from oldhost_simulator.facts import Entry, fact_to_json
from oldhost_simulator.faults import Switchboard
from oldhost_simulator.limits import FOREIGN_WRITES_MAX
from oldhost_simulator.pace import Pace
from oldhost_simulator.parameters import InvalidParameterError, read_number, read_object, read_only, read_whole_number
from oldhost_simulator.server import Server


class Controls:
    def __init__(
        self,
        clock: Clock,
        call_handler: CallHandler,
        faults: Switchboard,
        pace: Pace,
        counters: Counters,
        server: Server,
    ) -> None:
        self._clock = clock
        self._call_handler = call_handler
        self._host = call_handler.host
        self._faults = faults
        self._pace = pace
        self._counters = counters
        self._server = server

    # ------------------------------------------------------------------------------------------------- reading

    def journal(self, since: int) -> list[Entry]:
        return self._host.journal[since:]

    def incidents(self) -> dict[str, Any]:
        return {"incidents": [fact_to_json(incident) for incident in self._host.incidents]}

    def records(self) -> dict[str, Any]:
        records = [
            {"entity_type": entity_type, "entity_id": entity_id, "event_type": event_type, **_record(entry)}
            for (entity_type, entity_id, event_type), entry in self._host.records.items()
        ]
        return {"records": records, "expected_nonce": self._host.expected_nonce}

    def stats(self) -> dict[str, Any]:
        now, counters, host = self._clock.now(), self._counters, self._host
        return {
            "requests": counters.requests,
            "applied": counters.applied,
            "rejected": counters.rejected,
            "gaps": host.count("gap"),
            "replays": host.count("replay"),
            "bans": host.count("ban"),
            "banned_requests": counters.banned_requests,
            "busy_answers": counters.busy_answers,
            "malformed": counters.malformed,
            "connections": counters.connections,
            "refused_connections": counters.refused_connections,
            "reset_connections": counters.reset_connections,
            "expected_nonce": host.expected_nonce,
            "journal_length": len(host.journal),
            "banned_until": host.banned_until(now),
            "busy_seconds": counters.busy_until(now),
            "uptime_seconds": now - counters.started_at,
            "busy_share": counters.busy_share(now),
            "window_seconds": counters.window_seconds(now),
            "last_request_at": counters.last_request_at,
            "latency_ms": self._pace.latency_ms,
            "jitter_ms": self._pace.jitter_ms,
            "now": now,
        }

    def reset_stats(self) -> dict[str, Any]:
        self._counters.reset_window(self._clock.now())
        return self.stats()

    # -------------------------------------------------------------------------------------------------- faults

    def faults(self) -> dict[str, Any]:
        return {"faults": self._faults.faults()}

    def switch_on(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        fault = self._faults.switch_on(wanted)
        self._server.faults_changed()
        return fault

    def switch_off(self, name: str | None = None) -> dict[str, Any]:
        return {"switched_off": self._faults.switch_off(name)}

    # ------------------------------------------------------------------------------------------------- actions

    def ban(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        now = self._clock.now()
        read_only(wanted, ("seconds",), "ban")
        seconds = read_number("seconds", wanted.get("seconds", self._host.ban_seconds))
        self._call_handler.record([self._host.ban(now, seconds)])
        return {"banned_until": self._host.banned_until(now)}

    def unban(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, (), "unban")
        now = self._clock.now()
        was_banned = self._host.banned_until(now) is not None
        if was_banned:
            self._call_handler.record([self._host.unban(now)])
        return {"was_banned": was_banned}

    def restore(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, ("expected_nonce",), "restore")
        expected_nonce = read_whole_number("expected_nonce", wanted.get("expected_nonce"))
        try:
            self._call_handler.record([self._host.restore(self._clock.now(), expected_nonce)])
        except ValueError as error:
            raise InvalidParameterError(str(error)) from None
        return {"expected_nonce": self._host.expected_nonce}

    def foreign_write(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, ("count", "body"), "foreign-write")
        body = read_object("body", wanted["body"]) if "body" in wanted else None
        for _ in range(read_whole_number("count", wanted.get("count", 1), up_to=FOREIGN_WRITES_MAX)):
            self._call_handler.record([self._host.foreign_write(self._clock.now(), body)])
        return {"expected_nonce": self._host.expected_nonce}

    def latency(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, ("latency_ms", "jitter_ms"), "latency")
        latency_ms = read_number("latency_ms", wanted.get("latency_ms", self._pace.latency_ms))
        jitter_ms = read_number("jitter_ms", wanted.get("jitter_ms", self._pace.jitter_ms))
        self._pace.latency_ms, self._pace.jitter_ms = latency_ms, jitter_ms
        return {"latency_ms": latency_ms, "jitter_ms": jitter_ms}

    def close_connection(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        read_only(wanted, (), "close-connection")
        return {"closed": self._server.close_connection()}


def entry_to_json(index: int, entry: Entry) -> dict[str, Any]:
    return {"index": index, **fact_to_json(entry)}


def _record(entry: Entry) -> dict[str, Any]:
    body = entry.body or {}
    return {"payload": body.get("payload"), "body": body, "nonce": entry.nonce, "applied_at": entry.applied_at}
