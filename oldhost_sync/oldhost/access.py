"""How OldHost lets us in: the certificates of a TLS connection, the credentials that each request carries, and the
proxy on the way.

They come from files, which are read for each new connection: renewed ones are used without a restart. What they hold
appears in no error, log or representation.
"""

from __future__ import annotations

import base64
import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.errors import NoAccess
from oldhost_sync.watched_file import stamp

AUTH_SHAPE = "one line: `basic USER:PASSWORD` or `bearer TOKEN`"
AUTH_BYTES_MAX = 8 * 1024
# RFC 6750's alphabet of tokens.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
# Control characters, and what was no UTF-8.
_UNFIT = re.compile(r"[\x00-\x1f\x7f\ufffd]")

# By OpenSSL's number: what is wrong with OldHost's certificate.
_WRONG_CERTIFICATE = {
    9: "is not valid yet: compare the clocks",
    10: "has expired",
    18: "is signed by itself, which the CA file does not list",
    19: "is signed by an authority that the CA file does not list",
    20: "is signed by an authority that the CA file does not list",
    21: "is signed by an authority that the CA file does not list",
    23: "is revoked",
    62: "is for another name",
    64: "is for another address",
}
# OldHost, or a proxy before it, does not accept our certificate; with TLS 1.3 it says so at the first answer.
REFUSED_OURS = "OldHost, or a proxy before it, does not accept our certificate"
_REFUSES_OURS = re.compile(r"ALERT_(BAD_CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED|.*CERTIFICATE.*)")


@dataclass(frozen=True, slots=True)
class Access:
    """The files, each of them optional. `ca`: who signs OldHost's certificate (PEM; None: the system's authorities);
    `cert`, `key`: our own certificate and its key (PEM; one file may hold both); `auth`: see AUTH_SHAPE. `proxy`: where
    connections begin, if not at OldHost; `proxy_auth`: as `auth`, for the proxy only. `sign_key`: what signs
    requests, one line.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    auth: Path | None = None
    proxy: Address | None = None
    proxy_auth: Path | None = None
    sign_key: Path | None = None

    def stamp(self) -> tuple[tuple[int, ...], ...]:
        """Changes when one of the certificates' files does."""
        return tuple(stamp(file) for file in (self.ca, self.cert, self.key) if file is not None)

    def context(self) -> ssl.SSLContext:
        """For connections that verify OldHost's certificate and its name. Raises NoAccess."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ValueError) as error:
            raise NoAccess("tls", f"the CA file {self.ca} can't be used: {_why(error)}") from None
        context.set_alpn_protocols(["http/1.1"])
        # Certificates of older authorities lack extensions that Python 3.13 and later want by default.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.options |= ssl.OP_NO_RENEGOTIATION  # else reading might have to wait for writing
        if self.cert is not None:
            try:
                # An encrypted key would ask for its password at the terminal.
                context.load_cert_chain(self.cert, self.key, password=lambda: "")
            except (OSError, ValueError) as error:
                why = f"our certificate {self.cert} can't be used with its key: {_why(error)}"
                raise NoAccess("credentials", why) from None
        return context

    def authorization(self) -> str:
        """The value of the Authorization header, a secret; empty without credentials. Raises NoAccess."""
        return _authorization(self.auth)

    def proxy_authorization(self) -> str:
        """Likewise of Proxy-Authorization."""
        return _authorization(self.proxy_auth)

    def signing(self) -> bytes:
        """The key that requests are signed with, a secret; empty without. Raises NoAccess."""
        if self.sign_key is None:
            return b""
        key = _read(self.sign_key).strip()
        if not key or b"\n" in key:
            raise NoAccess("credentials", f"the key in {self.sign_key} is invalid: one line")
        return key


def _authorization(file: Path | None) -> str:
    if file is None:
        return ""
    # An error while it is decoded would hold it.
    line = _read(file).decode(errors="replace").strip()
    scheme, _, given = line.partition(" ")
    given = given.strip()
    if scheme.lower() == "basic" and ":" in given and not _UNFIT.search(given):
        return f"Basic {base64.b64encode(given.encode()).decode()}"
    if scheme.lower() == "bearer" and _TOKEN.fullmatch(given):
        return f"Bearer {given}"
    raise NoAccess("credentials", f"the credentials in {file} are invalid: {AUTH_SHAPE}")


def _read(file: Path) -> bytes:
    """Empty if it is too large. Raises NoAccess."""
    try:
        with file.open("rb") as opened:
            read = opened.read(AUTH_BYTES_MAX + 1)
    except OSError as error:
        raise NoAccess("credentials", f"the credentials in {file} can't be read: {error.strerror}") from None
    return read if len(read) <= AUTH_BYTES_MAX else b""


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "it is no certificate, or the key is another one's or encrypted"
    return getattr(error, "strerror", None) or type(error).__name__


def no_trust(error: ssl.SSLError, name: str) -> NoAccess:
    """Why there is no TLS connection with the host `name`; no text of its certificate is in it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        wrong = _WRONG_CERTIFICATE.get(error.verify_code) or f"can't be verified ({error.verify_message})"
        return NoAccess("tls", f"OldHost's certificate {wrong}; we reach it as {name}")
    if refuses_ours(error):
        return NoAccess("credentials", REFUSED_OURS)
    if "HANDSHAKE_FAILURE" in (error.reason or ""):
        return NoAccess("tls", "OldHost refuses the TLS connection: it may want a certificate of ours")
    if error.reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST"}:
        return NoAccess("tls", f"{name} speaks no TLS there: compare the address")
    return NoAccess("tls", f"no TLS connection with {name}: {(error.reason or 'no reason given').lower()}")


def refuses_ours(error: ssl.SSLError) -> bool:
    """Whether it is the other side's refusal of our certificate."""
    return bool(_REFUSES_OURS.search(error.reason or ""))
