"""Every setting of the product: `SYNC_…` from the environment or a `.env` file, checked once, at the entry point.

Nothing reads the environment at import. The SDK reads Temporal's own settings (`TEMPORAL_ADDRESS`, …).
Durations are in seconds and may be small, so that a demonstration can compress time. What hosts may differ in is read
by `of_host` only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from oldhost_sync.credentials import (
    NAME,
    ApiToken,
    EncryptionKey,
    Role,
    parse_act_keys,
    parse_api_tokens,
    parse_encryption_keys,
)
from oldhost_sync.driver_choice import HTTP
from oldhost_sync.drivers.mapping import HostMapping
from oldhost_sync.host_settings import (
    FILES,
    SHARED,
    ConsistencyPromise,
    EmergencyPromise,
    HostSettings,
    RequestTimeout,
    SettleTime,
    Span,
    Turns,
    Wait,
)
from oldhost_sync.hosts_file import HostInFile, read_hosts
from oldhost_sync.oldhost.address import BARE, SHAPE, has_credentials, parse_address, parse_proxy
from oldhost_sync.oldhost.mapping_file import read_mapping
from oldhost_sync.policy import limits
from oldhost_sync.policy.machine.release import RELEASE, RELEASE_MIN
from oldhost_sync.policy.rules.quota import CHANGES_PER_MINUTE, EMERGENCIES_PER_MINUTE, REQUESTS_PER_MINUTE

__all__ = [
    "ApiToken",
    "LogFormat",
    "Role",
    "Settings",
    "SettingsError",
    "TraceExport",
    "bind_address",
    "load_settings",
    "parse_api_tokens",
    "parse_oldhost_urls",
]


class LogFormat(StrEnum):
    """text: lines for people · json: one object per line."""

    TEXT = "text"
    JSON = "json"


class TraceExport(StrEnum):
    """off: no traces · otlp: to a collector, by OTLP over HTTP."""

    OFF = "off"
    OTLP = "otlp"


# At least a week, because people look at the last week; a century is for ever.
Days = Annotated[int, Field(ge=7, le=36_500)]

_LINES = "one on each line; read again when it changes"
_HTTP_URL = r"^https?://[^/\s]+", "http://address:port or https://address:port"
_DATABASE_URL = r"^(mysql|mariadb)(\+pymysql)?://", "mysql+pymysql://user:password@address:port/database"
_ORIGIN = re.compile(r"https?://[^/\s@]+")


class SettingsError(Exception):
    """A setting is missing or invalid, which the operator must correct; the message names each one. Do not retry."""


class Settings(BaseSettings):
    """See the module's docstring. `SYNC_X` sets field `x`; tests and the demo pass values by name instead."""

    model_config = SettingsConfigDict(
        env_prefix="SYNC_",
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,  # values may be secrets
    )

    database_url: str | None = Field(
        default=None, repr=False, description="MariaDB: mysql+pymysql://user:password@host:3306/database"
    )
    oldhost_url: str | None = Field(
        default=None, repr=False, description="OldHost: http://address:port or https://address:port, and a path, if any"
    )
    oldhost_ca_file: Path | None = Field(
        default=None, description="Who signs OldHost's certificate, PEM; empty: the system's authorities"
    )
    oldhost_cert_file: Path | None = Field(default=None, description="Our certificate for OldHost, PEM")
    oldhost_key_file: Path | None = Field(default=None, description="Its key, PEM; empty: it is in the same file")
    oldhost_auth_file: Path | None = Field(
        default=None,
        description="Our credentials for OldHost, one line: basic USER:PASSWORD, or bearer TOKEN. These files are read "
        "anew for each connection; they and the proxy are for SYNC_OLDHOST_URL only",
    )
    oldhost_proxy: str | None = Field(
        default=None,
        repr=False,
        description="A proxy that connects us to OldHost (CONNECT): http://address:port. Variables such as HTTP_PROXY "
        "are not read",
    )
    oldhost_proxy_auth_file: Path | None = Field(
        default=None, description="Our credentials for the proxy, in the same form"
    )
    host: str = Field(
        default="oldhost", pattern=f"^{limits.NAME_PATTERN}$", description="Name of the host this writer serves"
    )
    mapping_file: Path | None = Field(
        default=None,
        description="How changes become operations, TOML; `migrate` checks and installs it. Empty: what is installed "
        "stays, at first OldHost's own form",
    )
    debounce_seconds: Wait = Field(default=120.0, description="How long an LWW key must be quiet before it is sent")
    max_wait_seconds: Wait = Field(
        default=600.0, description="The longest time that further changes may delay an LWW key"
    )
    early_send_seconds: Span | None = Field(
        default=None,
        description="While OldHost is idle, an LWW key that was quiet for this long is sent before its debounce ends; "
        "empty: never",
    )
    txn_per_lww: Turns = Field(default=3, description="TXN turns for each LWW turn while both wait")
    ban_seconds: Span = Field(
        default=900.0,
        description="The length of a ban if OldHost does not give it; OldHost is asked again after this time at the "
        "latest",
    )
    settle_seconds: SettleTime = Field(
        default=10.0,
        description="How long after a send OldHost may still apply it; until then 'not applied' proves nothing",
    )
    request_timeout_seconds: RequestTimeout = Field(
        default=5.0,
        description="The total timeout of one request to OldHost; a reply that is long overdue times out sooner",
    )
    sweep_seconds: Span = Field(
        default=300.0, description="How often the writer searches for outstanding changes that it does not hold"
    )
    probe_seconds: Span = Field(default=100.0, description="How often an idle writer compares its nonce with OldHost's")
    emergency_seconds: EmergencyPromise = Field(
        default=30.0, description="How old an emergency may be when OldHost has it, as promised to people"
    )
    consistency_hours: ConsistencyPromise = Field(
        default=4.0, description="How old any other change may be when OldHost has it, as promised to people"
    )
    release_max: int | None = Field(
        default=None,
        ge=RELEASE_MIN,
        le=RELEASE,
        description="The newest release of the writer's decisions that new runs may use; empty: the newest "
        "that all workers know",
    )
    settlement_dir: str | None = Field(
        default=None, description="The folder of settlement files, one for all relays; empty: the ledger is not pruned"
    )
    retention_changes_days: Days = Field(
        default=limits.RETENTION_DAYS, description="How long changes with a fate are kept, and scheduled changes, too"
    )
    retention_ledger_days: Days = Field(
        default=limits.RETENTION_LEDGER_DAYS, description="How long the ledger is kept, if settlement files are written"
    )
    retention_audit_days: Days = Field(
        default=limits.RETENTION_AUDIT_DAYS, description="How long the audit of operators' actions is kept"
    )
    retention_alerts_days: Days = Field(
        default=limits.RETENTION_DAYS, description="How long closed alerts and late emergencies are kept"
    )
    oldhost_urls: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        repr=False,
        description="Further hosts that all roles serve: name=url, name=url",
    )
    hosts_file: Path | None = Field(
        default=None, description="A TOML file with further hosts that differ: see Several hosts"
    )
    api_tokens: Annotated[tuple[ApiToken, ...], NoDecode] = Field(
        default=(),
        repr=False,
        description="name:role:sha256hex, or name:role:sha256hex:2027-01-31 with a last day; comma-separated. Roles: "
        "app, viewer, ops; for some hosts only: app@host+host",
    )
    api_tokens_file: Path | None = Field(default=None, description=f"A file with further tokens, {_LINES}")
    act_keys: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        repr=False,
        description="Signs operators' actions on their way through Temporal, 32 characters or more; the same for API "
        "and worker. Several, comma-separated: the first signs, all are accepted",
    )
    act_keys_file: Path | None = Field(default=None, description=f"A file with these keys instead, {_LINES}")
    temporal_keys: Annotated[tuple[EncryptionKey, ...], NoDecode] = Field(
        default=(),
        repr=False,
        description="Encrypts what Temporal stores: id=key, where the key is 32 bytes in base64; the same for all "
        "roles. Several, comma-separated: the first encrypts, all decrypt",
    )
    temporal_keys_file: Path | None = Field(default=None, description=f"A file with these keys instead, {_LINES}")
    api_bind: str = Field(default="127.0.0.1:8000", description="Where the API listens, address:port")
    api_connections: int = Field(
        default=800, ge=1, le=100_000, description="How many connections one API process accepts at the same time"
    )
    api_connections_per_address: int = Field(
        default=200,
        ge=1,
        le=100_000,
        description="How many of them from one address; behind a proxy all have the proxy's address",
    )
    api_idle_seconds: int = Field(
        default=75,
        ge=1,
        le=3_600,
        description="How long a connection may be idle before its next request; must be longer than a proxy's own "
        "limit",
    )
    quota_requests: int = Field(
        default=REQUESTS_PER_MINUTE, ge=0, description="How many requests each token may make per minute; 0: no limit"
    )
    quota_changes: int = Field(
        default=CHANGES_PER_MINUTE, ge=0, description="How many changes each token may make per minute; 0: no limit"
    )
    quota_emergencies: int = Field(
        default=EMERGENCIES_PER_MINUTE, ge=0, description="How many of these changes may be emergencies; 0: no limit"
    )
    console_origin: str | None = Field(
        default=None,
        description="The console's address as browsers see it, https://name, if a proxy serves it over TLS",
    )
    console_session_seconds: float = Field(
        default=43_200.0, gt=0, le=604_800, description="How long a user stays signed in to the console"
    )
    console_idle_seconds: float = Field(default=7_200.0, gt=60, description="Who does nothing so long is signed out")
    temporal_ui_url: str | None = Field(
        default=None,
        description="The namespace in Temporal's UI, https://name/namespaces/default; the console links to the writer "
        "there",
    )
    metrics_bind: str | None = Field(default=None, description="Where relay and worker serve /metrics, address:port")
    temporal_metrics_bind: str | None = Field(
        default=None, description="Where the worker's Temporal SDK serves its metrics, address:port; empty: nowhere"
    )
    log_format: LogFormat = Field(default=LogFormat.TEXT, description="The format of the roles' logs: text or json")
    traces: TraceExport = Field(
        default=TraceExport.OFF, description="Where traces are sent: off, or otlp, to the collector that OTEL_… names"
    )
    traces_ratio: float = Field(default=1.0, ge=0, le=1, description="The share of changes that are traced, 0 to 1")
    alert_webhook_url: str | None = Field(
        default=None,
        repr=False,
        description="Relay and worker post alerts here as JSON; the API shows whether it is set",
    )
    alert_webhook_secret: str | None = Field(
        default=None, repr=False, min_length=16, description="Signs posted alerts (HMAC-SHA256); empty: unsigned"
    )
    webhooks_file: Path | None = Field(
        default=None, description="A TOML file with the webhooks that relays post fates to: see fates.md"
    )

    _in_file: dict[str, HostInFile] = PrivateAttr(default_factory=dict)

    @field_validator("oldhost_urls", "api_tokens", "act_keys", "temporal_keys", mode="before")
    @classmethod
    def parse_list(cls, value: Any, info: ValidationInfo) -> Any:
        return _LISTS[info.field_name or ""](value) if isinstance(value, str) else value

    @field_validator("api_bind", "metrics_bind", "temporal_metrics_bind")
    @classmethod
    def check_bind(cls, value: str | None) -> str | None:
        if value is not None:
            bind_address(value)
        return value

    @field_validator("console_origin")
    @classmethod
    def check_origin(cls, value: str | None) -> str | None:
        if value is not None and not _ORIGIN.fullmatch(value):
            raise ValueError("give it as https://name or https://name:port, without a path")
        return value

    @field_validator("oldhost_url")
    @classmethod
    def check_oldhost_url(cls, value: str | None) -> str | None:
        if value is not None:
            parse_address(value)
        return value

    @field_validator("oldhost_proxy")
    @classmethod
    def check_oldhost_proxy(cls, value: str | None) -> str | None:
        if value is not None:
            parse_proxy(value)
        return value

    @field_validator("oldhost_urls")
    @classmethod
    def check_oldhost_urls(cls, value: dict[str, str]) -> dict[str, str]:
        for name, url in value.items():
            try:
                scheme = parse_address(url).scheme
            except ValueError as error:
                raise ValueError(f"host {name!r}: {error}") from None
            if scheme in BARE:
                raise ValueError(f"host {name!r}: {scheme}:// needs a driver, which SYNC_HOSTS_FILE names")
        return value

    @field_validator("alert_webhook_url", "database_url", "temporal_ui_url")
    @classmethod
    def check_url(cls, value: str | None, info: ValidationInfo) -> str | None:
        pattern, shape = _DATABASE_URL if info.field_name == "database_url" else _HTTP_URL
        if value is not None and not re.match(pattern, value):
            raise ValueError(f"give it as {shape}")
        if value is not None and info.field_name != "database_url" and has_credentials(value):
            raise ValueError("give it without user and password, which would be shown or not be used")
        return value

    @model_validator(mode="after")
    def timing_and_access_fit(self) -> Self:
        own = HostSettings.model_validate({**self._shared(), **self._access()})
        if found := [why for _, why in (*own.mistakes_of_driver(), *own.contradictions(name_in_environment))]:
            raise ValueError("; ".join(found))
        return self

    @model_validator(mode="after")
    def ledger_outlives_changes(self) -> Self:
        """A change's ledger row shows how it was sent; it is never deleted before the change."""
        if self.retention_ledger_days < self.retention_changes_days:
            raise ValueError(
                f"SYNC_RETENTION_LEDGER_DAYS is {self.retention_ledger_days}, "
                f"less than SYNC_RETENTION_CHANGES_DAYS {self.retention_changes_days}"
            )
        return self

    @model_validator(mode="after")
    def hosts_of_the_file_are_known(self) -> Self:
        if self.hosts_file is not None:
            try:
                self._in_file = read_hosts(self.hosts_file, self._shared(), self.oldhost_urls)
            except ValueError as error:
                raise ValueError(f"SYNC_HOSTS_FILE: {error}") from None
        return self

    def of_host(self, host: str) -> HostSettings:
        """What is set for a host: the only way to read what hosts may differ in. A host that is not served here has
        the deployment's timing, and no address.
        """
        if host in self._in_file:
            own = self._in_file[host].values
        elif host in self.oldhost_urls:
            own = {"url": self.oldhost_urls[host]}
        else:
            own = self._access() if host == self.host else {}
        return HostSettings.model_validate({**self._shared(), **own})

    def _shared(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SHARED}

    def _access(self) -> dict[str, Any]:
        return {name: getattr(self, f"oldhost_{name}") for name in ("url", "proxy", *FILES)}

    def need_database_url(self) -> str:
        """The database's address; SettingsError when it is not set."""
        if self.database_url is None:
            raise SettingsError(f"SYNC_DATABASE_URL is not set: {_DATABASE_URL[1]}")
        return self.database_url

    def urls_by_host(self) -> dict[str, str]:
        """Each host that this deployment serves, with its address; SettingsError when SYNC_HOST has none."""
        urls = {host: self.of_host(host).url for host in self.hosts()}
        if urls[self.host] is None:
            raise SettingsError(f"SYNC_OLDHOST_URL is not set: {SHAPE}")
        return {host: url for host, url in urls.items() if url is not None}

    def mappings(self) -> dict[str, HostMapping]:
        """By host, the mapping to be installed; none: what is installed stays. SettingsError names its mistakes."""
        hosts = dict.fromkeys((self.host, *self.oldhost_urls, *self._in_file))
        by_host = {host: path for host in hosts if (path := self.of_host(host).mapping_file) is not None}
        read, wrong = dict[Path, HostMapping](), dict[Path, str]()
        for host, path in by_host.items():
            if path in read or path in wrong:
                continue
            try:
                read[path] = read_mapping(path)
            except ValueError as error:
                wrong[path] = f"{self.place_of(host, 'mapping_file')}: {error}"
        for host, path in by_host.items():
            if path in read and read[path].has_paths and (driver := self.of_host(host).driver) != HTTP:
                wrong[path] = (
                    f"{self.place_of(host, 'mapping_file')}: it has paths, and driver {driver} has no place for them"
                )
        if wrong:
            raise SettingsError("; ".join(wrong.values()))
        return {host: read[path] for host, path in by_host.items()}

    def called(self, host: str, field: str) -> str:
        """What people change to change a host's field: a setting, or a key of the hosts file."""
        own = self._in_file.get(host)
        if field in SHARED:
            in_file = own is not None and field in own.values
        elif host in self.oldhost_urls and field == "url":
            return "SYNC_OLDHOST_URLS"
        else:
            in_file = own is not None or host in self.oldhost_urls
        return f"hosts.{host}.{field}" if in_file else name_in_environment(field)

    def place_of(self, host: str, field: str = "") -> str:
        """Where a host, or a field of it, is set, for errors."""
        own = self._in_file.get(host)
        if own is not None and (not field or field in own.values):
            return f"SYNC_HOSTS_FILE: {own.at(*([field] if field else []))}"
        return name_in_environment(field) if field else f"host {host!r}"

    def hosts(self) -> tuple[str, ...]:
        """SYNC_HOST first, then the others that are served. SettingsError when only the others have addresses: changes
        would be accepted for SYNC_HOST, too, and never sent. Or when SYNC_HOST has two.
        """
        others = (*self.oldhost_urls, *self._in_file)
        if others and self.oldhost_url is None and self.host not in others:
            raise SettingsError(
                "SYNC_OLDHOST_URL is not set, and neither SYNC_OLDHOST_URLS nor SYNC_HOSTS_FILE has an address for "
                f"SYNC_HOST ({self.host})"
            )
        if self.oldhost_url is not None and self.host in self._in_file:
            raise SettingsError(
                f"SYNC_HOSTS_FILE: {self._in_file[self.host].at()}: SYNC_OLDHOST_URL has an address for SYNC_HOST, too"
            )
        return tuple(dict.fromkeys((self.host, *others)))

    def to_environment(self) -> dict[str, str]:
        """The same settings as environment variables, for the roles that `up` starts; holds secrets."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        values["api_tokens"] = ",".join(each.entry for each in self.api_tokens)
        values["temporal_keys"] = ",".join(each.entry for each in self.temporal_keys)
        values["act_keys"] = ",".join(self.act_keys)
        values["oldhost_urls"] = ",".join(f"{host}={url}" for host, url in self.oldhost_urls.items())
        return {f"SYNC_{name.upper()}": str(value) for name, value in values.items() if value not in (None, "")}


def load_settings(**values: Any) -> Settings:
    """The settings of this process; `values` take precedence. SettingsError names each wrong setting, not its value."""
    check_client()
    try:
        return Settings(**values)
    except ValidationError as error:
        raise SettingsError("; ".join(_error_text(detail) for detail in error.errors(include_input=False))) from None


@cache
def check_client() -> None:
    """Raises SettingsError if applications' client is installed here, too, in another version: the two have files in
    common, so one of them has overwritten the other's.
    """
    with suppress(PackageNotFoundError):
        own, client = version("oldhost-sync"), version("oldhost-sync-client")
        if own != client:
            raise SettingsError(
                f"oldhost-sync {own} and oldhost-sync-client {client} are installed together and have files in common: "
                f"uninstall both, then install oldhost-sync {own}, which has all that the client has"
            )


def name_in_environment(field: str) -> str:
    """The setting for a field of `HostSettings`."""
    return f"SYNC_{field.upper()}" if field in SHARED else f"SYNC_OLDHOST_{field.upper()}"


def _error_text(detail: Any) -> str:
    message = str(detail["msg"]).removeprefix("Value error, ")
    name = "_".join(str(part) for part in detail["loc"]).upper()
    return f"SYNC_{name}: {message}" if name else message


def parse_oldhost_urls(text: str) -> dict[str, str]:
    """`name=url, …` as a dictionary by name; ValueError says which one is wrong."""
    urls: dict[str, str] = {}
    for number, entry in enumerate((each.strip() for each in text.split(",") if each.strip()), start=1):
        name, _, url = entry.partition("=")
        if not NAME.fullmatch(name) or not url:
            raise ValueError(f"host {number} must be name=http://address:port")
        if name in urls:
            raise ValueError(f"host {name!r} is given twice")
        urls[name] = url
    return urls


_LISTS: dict[str, Callable[[str], Any]] = {
    "oldhost_urls": parse_oldhost_urls,
    "api_tokens": parse_api_tokens,
    "act_keys": parse_act_keys,
    "temporal_keys": parse_encryption_keys,
}


def bind_address(value: str) -> tuple[str, int]:
    """`address:port` or `[address]:port` as a pair; ValueError for anything else. Port 0 means any free port."""
    address, separator, port = value.rpartition(":")
    address = address.removeprefix("[").removesuffix("]")
    if not separator or not address or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError("give it as address:port, for example 127.0.0.1:8000")
    return address, int(port)
