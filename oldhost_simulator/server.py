"""OldHost's port: one connection, one request at a time, all in the loop's one thread.

While a request is in process, nothing more is read from its connection, as in a single-threaded host: what the client
sends in that time waits in the kernel. So a client that disconnects is noticed only when its request is done. The
request is applied nevertheless; until then the connection counts as in use, and a new one is refused.
A client that leaves an idle connection is noticed at once. One that neither sends nor closes (stopped, or behind a
dead network) keeps the connection for ever.

During a ban a request takes its usual time before it gets its 403; a second connection is refused at once.
"""

from __future__ import annotations

import random
import socket
import struct
from dataclasses import dataclass, replace
from functools import partial

from oldhost_simulator.call import Call
from oldhost_simulator.call_handler import CallHandler, Counters
from oldhost_simulator.dialects.dialect import Answer, Dialect, Reader
from oldhost_simulator.dialects.http import HTTP
from oldhost_simulator.faults import Plan, Switchboard
from oldhost_simulator.host import Rejection
from oldhost_simulator.limits import BACKLOG, LINGER_SECONDS, LINGERING_MAX, READ_BYTES
from oldhost_simulator.loop import Loop
from oldhost_simulator.verdicts import Ready

# Linux keeps data sent with this flag until the connection is closed, and then sends both together.
WITH_THE_CLOSE = getattr(socket, "MSG_MORE", 0)


class Server:
    def __init__(
        self,
        loop: Loop,
        call_handler: CallHandler,
        faults: Switchboard,
        pace: Pace,
        counters: Counters,
        *,
        check_operations: bool,
        authorization: str | None = None,
        dialect: Dialect = HTTP,
    ) -> None:
        self._dialect = dialect
        self._loop = loop
        self._call_handler = call_handler
        self._faults = faults
        self._pace = pace
        self._counters = counters
        self._check_operations = check_operations
        self._authorization = authorization
        self._listener: socket.socket | None = None
        self._current: Connection | None = None
        self._lingering: dict[socket.socket, None] = {}

    def listen(self, host: str, port: int, family: socket.AddressFamily) -> int:
        """Binds and starts to listen; returns the port. Raises OSError."""
        self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._listener.setblocking(False)
        self._loop.watch(self._listener, self._accept)
        bound: int = self._listener.getsockname()[1]
        return bound

    def close(self) -> None:
        """Call it after the loop has ended. A request still in process is lost."""
        sockets = [self._listener, self._current.sock if self._current else None, *self._lingering]
        for sock in sockets:
            if sock is not None:
                sock.close()

    # -------------------------------------------------------------------------------------------- connections

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            sock.setblocking(False)
            if self._faults.refuses_connection():
                self._counters.reset_connections += 1
                reset_on_close(sock)
                sock.close()
                continue
            if self._current is not None and not self._current.in_process:
                self._readable(self._current)  # it may have been closed just before this one arrived
            if self._current is None:
                self._adopt(sock)
            else:
                self._refuse(sock)

    def _adopt(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._counters.connections += 1
        number = self._counters.connections
        reader = self._dialect.reader(number, check_operations=self._check_operations)
        self._current = Connection(sock, reader, is_ready=not self._dialect.greets)
        self._rest(self._current)

    def _refuse(self, sock: socket.socket) -> None:
        self._counters.refused_connections += 1
        try:
            sock.send(self._dialect.in_use)
        except OSError:
            sock.close()
        else:
            self._linger(sock)

    def _linger(self, sock: socket.socket) -> None:
        """Closes a connection after its answer, but still reads for a while: a reset would discard the answer."""
        try:
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            sock.close()
            return
        if len(self._lingering) >= LINGERING_MAX:
            sock.close()
            return
        self._lingering[sock] = None
        self._loop.watch(sock, partial(self._drain, sock))
        self._loop.timers.at(self._loop.clock.now() + LINGER_SECONDS, partial(self._end_linger, sock))

    def _drain(self, sock: socket.socket) -> None:
        try:
            over = not sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            over = True
        if over:
            self._end_linger(sock)

    def _end_linger(self, sock: socket.socket) -> None:
        if sock in self._lingering:
            del self._lingering[sock]
            self._loop.unwatch(sock)
            sock.close()

    def _rest(self, connection: Connection) -> None:
        """The connection has no request in process: wait for the next one, or for its end."""
        if connection.gone:
            self._release(connection)
            return
        if not connection.watched:
            connection.watched = True
            self._loop.watch(connection.sock, partial(self._readable, connection))
        connection.idle_since = self._loop.clock.now()
        self._expect_idle_close(connection)

    def _unwatch(self, connection: Connection) -> None:
        if connection.watched:
            connection.watched = False
            self._loop.unwatch(connection.sock)

    def _release(self, connection: Connection, *, reset: bool = False, linger: bool = False) -> None:
        """Ends the connection; the next one is accepted."""
        self._unwatch(connection)
        self._current = None
        if linger and not connection.gone:
            self._linger(connection.sock)
        else:
            connection.close(reset=reset)

    def _readable(self, connection: Connection) -> None:
        if connection.read():
            self._advance(connection)
        else:
            self._release(connection)

    # ----------------------------------------------------------------------------------------------- requests

    def _advance(self, connection: Connection) -> None:
        """Handles the completely read requests, one after the other; the rest of a partial one must still arrive."""
        while connection is self._current and not connection.in_process:
            call = connection.reader.next_call(self._loop.clock.now())
            if call is None:
                self._rest(connection)
                return
            if call.kind == "bye":
                self._release(connection)
            elif call.kind != "idle":
                self._begin(connection, call)

    def _begin(self, connection: Connection, call: Call) -> None:
        now = call.received_at
        self._counters.begin_request(now)
        if self._authorization is not None and self._dialect.lacks(call, self._authorization):
            reply, last = self._dialect.denied(last=call.last)
            self._reply(connection, reply, last=last)
            return
        if not connection.is_ready and call.kind != "logon":
            call = replace(call, problem="log on first")
        plan = self._faults.plan(call)
        if plan.ending in {"drop_before", "apply_late"}:
            self._drop(connection, call, plan, now)
            return
        connection.in_process = True
        due = now + self._pace.next_seconds() + plan.extra_seconds
        if due <= now:
            self._finish(connection, call, plan)
            return
        self._unwatch(connection)
        self._work(connection, call, plan)
        self._loop.timers.at(due, partial(self._finish_and_advance, connection, call, plan))

    def _work(self, connection: Connection, call: Call, plan: Plan) -> None:
        """Tells the client now and then that the answer to this call takes longer."""
        if plan.working_seconds is not None:
            connection.at_work_on = call
            due = self._loop.clock.now() + plan.working_seconds
            self._loop.timers.at(due, partial(self._tell_working, connection, call, plan))

    def _tell_working(self, connection: Connection, call: Call, plan: Plan) -> None:
        if connection.at_work_on is call:
            connection.write(self._dialect.working)
            self._work(connection, call, plan)

    def _drop(self, connection: Connection, call: Call, plan: Plan, now: float) -> None:
        self._counters.end_request(now)
        self._release(connection, reset=plan.parameters.get("reset", False))
        if plan.ending == "apply_late":
            due = now + plan.parameters["delay_ms"] / 1000
            self._loop.timers.at(due, partial(self._apply_late, call))

    def _apply_late(self, call: Call) -> None:
        self._call_handler.answer(call, self._loop.clock.now(), late=True)

    def _finish_and_advance(self, connection: Connection, call: Call, plan: Plan) -> None:
        self._finish(connection, call, plan)
        self._advance(connection)

    def _finish(self, connection: Connection, call: Call, plan: Plan) -> None:
        parameters, last = plan.parameters, call.last
        applies = parameters.get("applied", parameters.get("nonce") != "unused")
        answer = self._answer(connection, call, plan) if applies else None
        if plan.ending == "hang":
            self._hang(connection, parameters["seconds"])
        elif plan.ending == "garbage":
            reply, goes_on = self._dialect.garbage(parameters["reply"], call)
            self._reply(connection, reply, last=last or not goes_on)
        elif plan.ending == "answer":
            self._reply(connection, self._dialect.other(parameters["status"], parameters["body"]), last=last)
        else:
            assert answer is not None, "only a hang, garbage and another answer can be without an answer"
            reply = self._encoded(answer, plan, last=last)
            if plan.ending == "cut_reply":
                reply = reply[: len(reply) // 2]
            elif plan.ending in {"drop_after", "swallow"}:
                reply = b""
            ends = plan.ending not in {None, "duplicate", "swallow"}
            self._reply(connection, reply, last=last or ends, reset=parameters.get("reset", False))

    def _answer(self, connection: Connection, call: Call, plan: Plan) -> Answer:
        """The answer to this call; a proxy that delivers it twice gets two."""
        rejection = (
            Rejection(f"answered {plan.parameters['status']}") if plan.parameters.get("nonce") == "used" else None
        )
        verdict = self._call_handler.answer(call, self._loop.clock.now(), rejection=rejection)
        if plan.ending == "duplicate":
            again = self._call_handler.answer(call, self._loop.clock.now())
            verdict = again if plan.parameters["answer"] == "second" else verdict
        connection.is_ready = connection.is_ready or isinstance(verdict, Ready)
        return self._faults.said(call, self._dialect.answer(verdict), self._dialect.expected)

    def _encoded(self, answer: Answer, plan: Plan, *, last: bool) -> bytes:
        if plan.ending == "http10":
            return self._dialect.encode_old(answer, length=plan.parameters["length"])
        return self._dialect.encode(answer, last=last)

    def _reply(self, connection: Connection, reply: bytes, *, last: bool, reset: bool = False) -> None:
        """If the client has gone, only the reply is lost: its completely read requests are still served."""
        sent = not reply or connection.write(reply, closes=last and not reset)
        connection.in_process, connection.at_work_on = False, None
        self._counters.end_request(self._loop.clock.now())
        if last:
            self._release(connection, reset=reset, linger=not reset)
        elif not sent:
            self._unwatch(connection)
            connection.close()

    def _hang(self, connection: Connection, seconds: float) -> None:
        self._unwatch(connection)
        connection.hanging = True
        if connection.gone:  # closed by the admin port, which ends a hang, so it need not begin
            self._end_hang(connection)
            return
        self._loop.timers.at(self._loop.clock.now() + seconds, partial(self._end_hang, connection))

    def _end_hang(self, connection: Connection) -> None:
        if connection.hanging:
            connection.hanging = False
            connection.in_process, connection.at_work_on = False, None
            self._counters.end_request(self._loop.clock.now())
            self._release(connection)

    # ---------------------------------------------------------------------------------- by the admin and by faults

    def close_connection(self) -> bool:
        """Closes the connection, if there is one. A request in process is still finished; a hang ends."""
        connection = self._current
        if connection is None or connection.gone:
            return False
        if connection.hanging:
            self._end_hang(connection)
        elif connection.in_process:
            self._unwatch(connection)
            connection.close()
        else:
            self._release(connection)
        return True

    def faults_changed(self) -> None:
        if self._current is not None and not self._current.in_process:
            self._expect_idle_close(self._current)

    def _expect_idle_close(self, connection: Connection) -> None:
        seconds = self._faults.idle_close_seconds()
        if seconds is not None:
            due = connection.idle_since + seconds
            self._loop.timers.at(due, partial(self._idle_close, connection, connection.idle_since))

    def _idle_close(self, connection: Connection, idle_since: float) -> None:
        if connection is not self._current or connection.in_process or connection.idle_since != idle_since:
            return
        seconds = self._faults.idle_close_seconds()
        if seconds is not None and self._loop.clock.now() >= idle_since + seconds and self._faults.closes_idle():
            self._release(connection)


@dataclass(slots=True, eq=False)
class Connection:
    """The one connection: its socket, what was read from it, and whether a request of it is in process.

    `is_ready`: the client has logged on, if it must; `at_work_on`: for this call it is told to wait.

    Reading and writing never block and never raise for anything the peer does: a peer that has gone is not an error.
    """

    sock: socket.socket
    reader: Reader
    is_ready: bool = True
    at_work_on: Call | None = None
    watched: bool = False
    in_process: bool = False
    hanging: bool = False
    gone: bool = False
    idle_since: float = 0.0

    def read(self) -> bool:
        """Reads what has arrived; False when the peer has closed or reset the connection."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.reader.feed(data)
        return bool(data)

    def write(self, data: bytes, *, closes: bool = False) -> bool:
        """False when the peer has gone, or has not read for so long that the answer does not fit in its buffer.

        `closes`: the caller closes the connection next; the peer then gets data and end together, however slow this
        process is.
        """
        if self.gone:
            return False
        try:
            return self.sock.send(data, WITH_THE_CLOSE if closes else 0) == len(data)
        except OSError:
            return False

    def close(self, *, reset: bool = False) -> None:
        self.gone = True
        if reset:
            reset_on_close(self.sock)
        self.sock.close()


def reset_on_close(sock: socket.socket) -> None:
    """Make `close` send RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Pace:
    """How long OldHost takes for a request: a latency plus or minus a uniform jitter, from its own seeded generator."""

    def __init__(self, *, latency_ms: float, jitter_ms: float, seed: int) -> None:
        self.latency_ms = latency_ms
        self.jitter_ms = jitter_ms
        self._random = random.Random(f"pace {seed}")

    def next_seconds(self) -> float:
        if not self.jitter_ms:
            return self.latency_ms / 1000
        return max(0.0, self.latency_ms + self._random.uniform(-self.jitter_ms, self.jitter_ms)) / 1000
