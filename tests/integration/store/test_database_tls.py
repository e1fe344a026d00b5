"""TLS to a real MariaDB whose certificate a test's own CA has signed, for `localhost` and 127.0.0.1."""

from __future__ import annotations

import asyncio
import ipaddress
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.store.engine import check_server, create_engine, database_address, take_tls
from oldhost_sync.store.errors import DatabaseUnavailable, TlsFailed, UnsuitableServer
from tests.conformance.private_mariadb import PrivateMariaDB

pytestmark = pytest.mark.mariadb

# It leads to 127.0.0.1, and no certificate has it.
ANOTHER_NAME = "127.1"


@dataclass
class Authority:
    """A CA, and files in `folder`."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        usage = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._builder(self.subject, self.key.public_key()).add_extension(usage, critical=True)
        self.file = self.folder / f"{self.name}.pem"
        self.file.write_bytes(certificate.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def sign_server(self) -> tuple[Path, Path]:
        """Certificate and key of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        builder = self._builder(subject, key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate, private = self.folder / "server.pem", self.folder / "server.key"
        certificate.write_bytes(builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM))
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return certificate, private

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self.subject).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))


class ServerWithCertificate(PrivateMariaDB):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.authority = Authority(folder, "ours")
        self.stranger = Authority(folder, "stranger")
        self._certificate, self._key = self.authority.sign_server()

    def _command(self, program: str) -> list[str]:
        files = {"ca": self.authority.file, "cert": self._certificate, "key": self._key}
        return [*super()._command(program), *(f"--ssl-{name}={file}" for name, file in files.items())]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerWithCertificate]:
    with (
        tempfile.TemporaryDirectory(prefix="oldhost-sync-tls-") as folder,
        ServerWithCertificate(Path(folder)) as server,
    ):
        yield server


def cipher(server: ServerWithCertificate, host: str = "127.0.0.1", **options: object) -> str:
    """How the connection is encrypted; raises what the roles' check at the start does."""
    url = database_address(server.url).set(host=host).update_query_dict({name: str(o) for name, o in options.items()})
    engine = create_engine(url.render_as_string(hide_password=False), pool_size=1)
    try:
        check_server(engine)
        with engine.connect() as connection:
            return str(connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Ssl_cipher'").one()[1])
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    "options",
    [{}, {"ssl_verify_identity": "true"}, {"ssl_verify_cert": "true"}, {"ssl_check_hostname": "true"}],
    ids=str,
)
def test_a_certificate_of_the_named_ca_for_this_host_is_accepted(
    server: ServerWithCertificate, options: dict[str, str]
) -> None:
    assert cipher(server, ssl_ca=server.authority.file, **options).startswith("TLS_")


@pytest.mark.parametrize("options", [{}, {"ssl_verify_identity": "true"}], ids=str)
def test_a_certificate_for_another_host_is_refused_and_the_error_says_so(
    server: ServerWithCertificate, options: dict[str, str]
) -> None:
    with pytest.raises(DatabaseUnavailable, match="TLS to the database failed: Hostname mismatch"):
        cipher(server, ANOTHER_NAME, ssl_ca=server.authority.file, **options)


def test_a_certificate_of_another_ca_is_refused(server: ServerWithCertificate) -> None:
    with pytest.raises(TlsFailed):
        cipher(server, ssl_ca=server.stranger.file)


def test_without_a_ca_the_machine_s_certificates_count(server: ServerWithCertificate) -> None:
    with pytest.raises(TlsFailed):
        cipher(server, ssl_verify_identity="true")


def test_a_server_without_tls_is_told_as_such(mariadb_server: PrivateMariaDB) -> None:
    """The tests' own server has none."""
    url = database_address(mariadb_server.url).update_query_dict({"ssl_verify_identity": "true"})
    engine = create_engine(url.render_as_string(hide_password=False), pool_size=1)
    with pytest.raises(TlsFailed, match="the server does not offer it"):
        check_server(engine)
    engine.dispose()


def test_the_api_s_further_connections_trust_no_other_certificate_than_its_first_ones(
    server: ServerWithCertificate,
) -> None:
    """Those of probes, quotas and alerts."""
    url = database_address(server.url).update_query_dict({"ssl_ca": str(server.stranger.file)})
    database = Database(connect_for_api(url.render_as_string(hide_password=False)))
    for each in (database, database.separate):
        with pytest.raises(TlsFailed):
            asyncio.run(each.run(lambda connection: connection.exec_driver_sql("SELECT 1").scalar_one()))
    database.close()


def test_the_name_may_be_left_unchecked(server: ServerWithCertificate) -> None:
    assert cipher(server, ANOTHER_NAME, ssl_ca=server.authority.file, ssl_verify_identity="false").startswith("TLS_")


def test_an_address_that_asks_for_nothing_is_encrypted_and_unchecked(server: ServerWithCertificate) -> None:
    assert cipher(server, ANOTHER_NAME).startswith("TLS_")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("ssl_ca=/nowhere.pem", "ssl_ca can't be used"),
        ("ssl_verify_identity=perhaps", "give it as true or false"),
        ("ssl_verify_cert=false&ssl_verify_identity=true", "ssl_verify_identity can't work"),
    ],
)
def test_options_that_make_no_sense_are_named(query: str, told: str) -> None:
    with pytest.raises(UnsuitableServer, match=told):
        take_tls(database_address(f"mariadb://me:hunter2@db/x?{query}"))
