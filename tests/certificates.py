"""Certificates for tests, made anew each time: an authority, a server's, a client's."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


@dataclass
class Authority:
    """Signs certificates; its own is in `file`. `folder`: where all files go.

    They have the extensions that Python 3.13 and later want: a test's own client checks by its defaults.
    """

    folder: Path
    name: str = "test authority"
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = self._builder(self.name, self._key, 0, 2)
        builder = builder.add_extension(x509.BasicConstraints(True, None), True).add_extension(usage, True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.file = self.folder / f"{self.name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, *names: str, begins: int = -1, ends: int = 2, password: bytes | None = None) -> tuple[Path, Path]:
        """The files of a certificate for these names or addresses, and of its key. `begins`, `ends`: days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(names[0], key, begins, ends)
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        signed = builder.add_extension(alternatives, False).sign(self._key, hashes.SHA256())
        certificate_file, key_file = self.folder / f"{names[0]}.pem", self.folder / f"{names[0]}.key"
        certificate_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
        return certificate_file, key_file

    def server(self, *names: str, wants_certificate: bool = False, ends: int = 2) -> ssl.SSLContext:
        """The context of a server that has a certificate for these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.sign(*names, begins=-5, ends=ends))
        if wants_certificate:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _builder(
        self, subject: str, key: ec.EllipticCurvePrivateKey, begins: int, ends: int
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + min(begins, -1) * DAY)
            .not_valid_after(now + ends * DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
