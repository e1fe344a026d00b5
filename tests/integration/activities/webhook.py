"""A webhook that says what it is told to say, and keeps what was posted to it."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """`answer` decides the status; `came` gets each alert as it comes, before it is answered; `raw` has
    their headers and bodies.
    """

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any]], int] = lambda _: 200
        self.came: queue.Queue[dict[str, Any]] = queue.Queue()
        self.methods: list[str] = []
        self.raw: list[tuple[Message, bytes]] = []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                webhook.methods.append(self.command)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                webhook.raw.append((self.headers, body))
                alert = json.loads(body)
                webhook.came.put(alert)
                status = webhook.answer(alert)
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", webhook.url)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                webhook.methods.append(self.command)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    @property
    def posted(self) -> list[str]:
        """The causes of what came since the last look."""
        return [self.came.get()["message"] for _ in range(self.came.qsize())]


@contextmanager
def serving() -> Iterator[Webhook]:
    webhook = Webhook()
    thread = threading.Thread(target=webhook.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield webhook
    finally:
        webhook.server.shutdown()
        thread.join()
        webhook.server.server_close()
