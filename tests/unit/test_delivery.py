"""A webhook that never finishes its answer holds no thread of ours."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from oldhost_sync import delivery
from oldhost_sync.delivery import DeliveryFailed, post


@pytest.fixture
def tarpit() -> Iterator[str]:
    """Its address; it answers byte by byte, and has no end."""
    over = threading.Event()

    def answer() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not over.wait(0.02):
                connection.send(b"a")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        over.set()
        thread.join()


def test_a_post_ends_however_slowly_its_answer_comes(tarpit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "POST_SECONDS_MAX", 0.3)
    with pytest.raises(DeliveryFailed):
        post(tarpit, {"event_id": 1})


def test_a_post_whose_time_is_over_before_it_is_connected_ends_then(
    tarpit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, found = threading.Event(), socket.getaddrinfo

    def interrupt(handler: delivery._InterruptibleHandler) -> None:
        its_own(handler)
        over.set()

    def looked_up(*arguments: object, **options: object) -> object:
        assert over.wait(10)
        return found(*arguments, **options)  # type: ignore[arg-type]

    its_own = delivery._InterruptibleHandler.interrupt
    monkeypatch.setattr(delivery._InterruptibleHandler, "interrupt", interrupt)
    monkeypatch.setattr(delivery, "POST_SECONDS_MAX", 0.3)
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    with pytest.raises(DeliveryFailed, match="TimeoutError"):
        post(tarpit, {"event_id": 1})
