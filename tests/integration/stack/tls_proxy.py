"""A TLS server in front of a plain one, as a Temporal cluster has it: with a CA of its own; it keeps what it hears."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

NAME = "temporal.test"


@dataclass(frozen=True)
class Authority:
    """A CA in `folder` that signs certificates for the server's name and for clients."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Authority:
        made = cls(folder)
        made._run("req", "-x509", "-days", "2", "-subj", "/CN=test CA", "-out", "ca.pem", *made._new_key("ca"))
        return made

    @property
    def certificate(self) -> str:
        return (self.folder / "ca.pem").read_text()

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate for `name` and its key, as PEM files."""
        self._run("req", "-subj", f"/CN={name}", "-out", f"{name}.csr", *self._new_key(name))
        (self.folder / f"{name}.ext").write_text(f"subjectAltName=DNS:{name}\n")
        signed = ("-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        self._run("x509", "-req", *signed, "-extfile", f"{name}.ext", "-out", f"{name}.pem")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    @staticmethod
    def _new_key(name: str) -> tuple[str, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, timeout=30, check=True)


@dataclass
class TlsProxy:
    """`address`: where it listens. `received`: all that clients sent, decrypted."""

    address: str = ""
    received: bytearray = field(default_factory=bytearray)


@asynccontextmanager
async def tls_proxy(plain: str, authority: Authority, *, wants_certificate: bool = False) -> AsyncIterator[TlsProxy]:
    """Hands each connection on to the server at `plain`. It speaks HTTP/2 only, as gRPC does."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.folder / "ca.pem")
    context.load_cert_chain(*authority.issue(NAME))
    context.set_alpn_protocols(["h2"])
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    host, _, port = plain.partition(":")
    proxy = TlsProxy()

    under_way: set[asyncio.Task[None]] = set()

    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        under_way.add(task)
        from_plain, to_plain = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(_pump(reader, to_plain, proxy.received), _pump(from_plain, writer, bytearray()))
        except (ConnectionError, ssl.SSLError, asyncio.CancelledError):
            pass  # a client left, or the test ends
        finally:
            for each in (writer, to_plain):
                each.transport.abort()

    server = await asyncio.start_server(hand_on, "127.0.0.1", 0, ssl=context)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way)
        await asyncio.sleep(0)  # so that the transports close


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: bytearray) -> None:
    while data := await reader.read(65_536):
        seen += data
        writer.write(data)
        await writer.drain()
