"""TLS in front of OldHost's plain port, as a terminating proxy: OldHost itself stays as it is."""

import contextlib
import socket
import ssl
import threading
from pathlib import Path

from oldhost_simulator.limits import BACKLOG, READ_BYTES

HANDSHAKE_SECONDS_MAX = 10.0


def server_context(certificate: Path, key: Path | None, client_ca: Path | None) -> ssl.SSLContext:
    """`client_ca`: only clients with a certificate of this authority are let in. Raises OSError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsFront:
    """Takes TLS connections and hands each one on to the plain port. Raises OSError when the port is taken."""

    def __init__(self, context: ssl.SSLContext, host: str, port: int, family: socket.AddressFamily, plain: int) -> None:
        self._context = context
        self._plain = host, plain
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def stop(self) -> None:
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _start(self, act: object, *arguments: object) -> None:
        threading.Thread(target=act, args=arguments, name="tls", daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, sock)

    def _serve(self, accepted: socket.socket) -> None:
        accepted.settimeout(HANDSHAKE_SECONDS_MAX)
        try:
            client = self._context.wrap_socket(accepted, server_side=True)
            client.settimeout(None)
            plain = socket.create_connection(self._plain)
        except OSError:
            accepted.close()
            return
        self._open |= {client, plain}
        self._start(self._pump, plain, client)
        self._pump(client, plain)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        """Until one side ends; then both do."""
        with contextlib.suppress(OSError, ValueError):
            while data := source.recv(READ_BYTES):
                target.sendall(data)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
            self._open.discard(sock)
