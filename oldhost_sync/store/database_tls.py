"""TLS to MariaDB, by the address's options: which certificates are trusted, and whether the host's name is checked.

PyMySQL takes these options in two ways that exclude each other: with `ssl_verify_identity` it ignores the `ssl_ca` of
an SQLAlchemy address, so that a good certificate is refused, and without a CA it checks no name. So the options are
read here, and PyMySQL is given a finished context. If the address names a CA, certificate and name are checked.
"""

from __future__ import annotations

import ssl
from typing import Any

from sqlalchemy.engine import URL

from oldhost_sync.store.errors import UnsuitableServer

_FILES = ("ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_cipher")
# The last two both say whether the host's name is checked: PyMySQL's option, and SQLAlchemy's.
_CHECKS = ("ssl_verify_cert", "ssl_verify_identity", "ssl_check_hostname")
_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def take_tls(url: URL) -> tuple[URL, ssl.SSLContext | None]:
    """`url` without the TLS options, and their context; None if there are none.

    Raises UnsuitableServer for an invalid option or a file that can't be used.
    """
    given = {name: str(url.query[name]) for name in (*_FILES, *_CHECKS) if name in url.query}
    if not given:
        return url, None
    try:
        context = _context(given)
    except OSError as error:  # no such file, or not in PEM
        named = ", ".join(name for name in _FILES if name in given) or "the system's certificates"
        raise UnsuitableServer(f"the database address asks for TLS, but {named} can't be used: {error}") from error
    return url.difference_update_query(given), context


def _context(given: dict[str, str]) -> ssl.SSLContext:
    trusted: dict[str, Any] = {"cafile": given.get("ssl_ca"), "capath": given.get("ssl_capath")}
    checks = {name: _is_on(name, given[name]) for name in _CHECKS if name in given}
    named = checks.get("ssl_verify_identity", checks.get("ssl_check_hostname"))
    checked = checks.get("ssl_verify_cert", bool(named) or any(trusted.values()))
    if named and not checked:
        raise UnsuitableServer("the database address turns ssl_verify_cert off: then ssl_verify_identity can't work")
    context = ssl.create_default_context(**trusted)
    # The certificates that MariaDB generates itself do not strictly follow RFC 5280.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = checked and named is not False
    context.verify_mode = ssl.CERT_REQUIRED if checked else ssl.CERT_NONE
    if "ssl_cert" in given:
        context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"))
    if "ssl_cipher" in given:
        context.set_ciphers(given["ssl_cipher"])
    return context


def _is_on(name: str, value: str) -> bool:
    found = _WORDS.get(value.lower())
    if found is None:
        raise UnsuitableServer(f"the database address has {name}={value}; give it as true or false")
    return found
