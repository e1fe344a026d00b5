"""Whom we trust behind TLS, whatever Python it is."""

from __future__ import annotations

import ssl

from oldhost_sync.oldhost.access import Access


def test_certificates_of_older_authorities_are_trusted_on_every_python() -> None:
    """From 3.13 on Python's default refuses those without key identifiers."""
    assert not Access().context().verify_flags & ssl.VERIFY_X509_STRICT


def test_certificate_and_name_are_always_verified() -> None:
    context = Access().context()
    assert context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
