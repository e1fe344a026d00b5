"""What is set for one host: its address, the files that let us in there, its mapping, its timing and promises.
Hosts of one deployment differ in these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, field_validator

from oldhost_sync.driver_choice import HTTP, driver_named
from oldhost_sync.drivers.contract import Driver, InvalidOptions
from oldhost_sync.oldhost.access import Access
from oldhost_sync.oldhost.address import parse_address, parse_proxy
from oldhost_sync.policy.rules.quiet_hours import QuietHours, duration, time_of_day
from oldhost_sync.policy.tuning import Promises

# The longest time from marking a row SENT to writing its request; after that it is not written any more.
SEND_WITHIN_SECONDS = 1.0
# How long after our timeout OldHost may still process a request that it has read, and apply it late.
SETTLE_MARGIN_SECONDS = 2.0

# At most a day.
Wait = Annotated[float, Field(ge=0, le=86_400)]
Span = Annotated[float, Field(gt=0, le=86_400)]
# A host takes some time for a request; and a month is no promise.
EmergencyPromise = Annotated[float, Field(ge=1, le=3600)]
ConsistencyPromise = Annotated[float, Field(ge=0.01, le=720)]
Turns = Annotated[int, Field(ge=1, le=1000)]
SettleTime = Annotated[float, Field(gt=0, le=600)]
RequestTimeout = Annotated[float, Field(gt=0, le=120)]


class HostSettings(BaseModel):
    """Durations in seconds; `Settings` describes each. `url`: None for a host that is not served here. `driver`: what
    speaks to it, `options`: that driver's own.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,  # an address may hold a secret by mistake
    )

    url: str | None = Field(default=None, repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    auth_file: Path | None = None
    proxy: str | None = Field(default=None, repr=False)
    proxy_auth_file: Path | None = None
    sign_key_file: Path | None = None
    # LWW event types whose operations may be sent twice, if nobody can say whether the host took them.
    resend_types: list[str] = Field(default_factory=list)
    # When each day it is sent nothing: from, for and zone of each.
    quiet: list[dict[str, str]] = Field(default_factory=list)
    driver: str = HTTP
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    mapping_file: Path | None
    debounce_seconds: Wait
    max_wait_seconds: Wait
    early_send_seconds: Span | None
    txn_per_lww: Turns
    ban_seconds: Span
    settle_seconds: SettleTime
    request_timeout_seconds: RequestTimeout
    sweep_seconds: Span
    probe_seconds: Span
    emergency_seconds: EmergencyPromise
    consistency_hours: ConsistencyPromise

    @property
    def promises(self) -> Promises:
        return Promises(round(self.consistency_hours * 3_600_000), round(self.emergency_seconds * 1000))

    @field_validator("url")
    @classmethod
    def check_url(cls, value: str | None) -> str | None:
        if value is not None:
            parse_address(value)
        return value

    @field_validator("proxy")
    @classmethod
    def check_proxy(cls, value: str | None) -> str | None:
        if value is not None:
            parse_proxy(value)
        return value

    @field_validator("quiet")
    @classmethod
    def check_quiet(cls, value: list[dict[str, str]]) -> list[dict[str, str]]:
        for each in value:
            _quiet_hours(each)
        return value

    @property
    def quiet_hours(self) -> tuple[QuietHours, ...]:
        return tuple(map(_quiet_hours, self.quiet))

    def made_driver(self) -> Driver:
        """Raises InvalidOptions, and ValueError where there is no such driver."""
        return driver_named(self.driver, self.options)

    def access(self) -> Access:
        """How it lets us in."""
        return Access(
            ca=self.ca_file,
            cert=self.cert_file,
            key=self.key_file,
            auth=self.auth_file,
            proxy=None if self.proxy is None else parse_proxy(self.proxy),
            proxy_auth=self.proxy_auth_file,
            sign_key=self.sign_key_file,
        )

    def mistakes_of_driver(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """What its driver does not take: the key, and why."""
        try:
            schemes = self.made_driver().schemes
        except InvalidOptions as error:
            yield from ((("options", *key), why) for key, why in error.mistakes)
            return
        except ValueError as error:
            yield ("driver",), str(error)
            return
        if self.url is not None and parse_address(self.url).scheme not in schemes:
            named = " or ".join(f"{scheme}://" for scheme in schemes)
            yield ("url",), f"driver {self.driver} needs an address that begins with {named}"

    def contradictions(self, named: Callable[[str], str]) -> Iterator[tuple[tuple[str, ...], str]]:
        """What does not fit together: the fields that are concerned, and why. `named`: what people call a field."""
        # After the settle time OldHost may not apply anything that was sent before it (trap 1); until then, OldHost's
        # count proves nothing. It begins when the row is marked SENT, so it covers the second within which writing may
        # start, the request's timeout, and what OldHost does with the request after that.
        need = SEND_WITHIN_SECONDS + self.request_timeout_seconds + SETTLE_MARGIN_SECONDS
        if self.settle_seconds < need:
            yield (
                ("settle_seconds", "request_timeout_seconds"),
                (
                    f"{named('settle_seconds')} is {self.settle_seconds:g}, and must be {need:g} or more: "
                    f"{SEND_WITHIN_SECONDS:g} s "
                    f"to start writing + {named('request_timeout_seconds')} {self.request_timeout_seconds:g} s "
                    f"+ {SETTLE_MARGIN_SECONDS:g} s in which OldHost may apply the request late"
                ),
            )
        if self.max_wait_seconds < self.debounce_seconds:
            yield (
                ("max_wait_seconds", "debounce_seconds"),
                (
                    f"{named('max_wait_seconds')} is {self.max_wait_seconds:g}, "
                    f"less than {named('debounce_seconds')} {self.debounce_seconds:g}"
                ),
            )
        if self.max_wait_seconds > self.consistency_hours * 3600:
            yield (
                ("max_wait_seconds", "consistency_hours"),
                (
                    f"{named('max_wait_seconds')} is {self.max_wait_seconds:g}, "
                    f"more than {named('consistency_hours')} {self.consistency_hours:g}"
                ),
            )
        # A certificate that is never used would look like protection.
        if self.key_file is not None and self.cert_file is None:
            yield ("key_file",), f"{named('key_file')} is set without {named('cert_file')}"
        if self.proxy_auth_file is not None and self.proxy is None:
            yield ("proxy_auth_file",), f"{named('proxy_auth_file')} is set without {named('proxy')}"
        if ("sign" in self.options) != (self.sign_key_file is not None) and self.driver == HTTP:
            yield ("options", "sign_key_file"), "options.sign and sign_key_file are given together only"
        of_tls = tuple(name for name in ("ca_file", "cert_file") if getattr(self, name) is not None)
        if of_tls and self.url is not None and not parse_address(self.url).tls:
            files = " and ".join(map(named, of_tls))
            yield of_tls, f"{files} {'need' if of_tls[1:] else 'needs'} {named('url')} to begin with https:// or tls://"


def _quiet_hours(given: dict[str, str]) -> QuietHours:
    if given.keys() != {"from", "for", "zone"}:
        raise ValueError("each has from, for and zone")
    try:
        zone = ZoneInfo(given["zone"])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("zone is the name of a time zone such as Europe/Berlin") from None
    return QuietHours(time_of_day(given["from"]), duration(given["for"]), zone)


# How a host lets us in; each of its own.
FILES = ("ca_file", "cert_file", "key_file", "auth_file", "proxy_auth_file")
PATHS = (*FILES, "sign_key_file", "mapping_file")
# Unless a host has its own, the deployment's.
SHARED = frozenset(name for name, field in HostSettings.model_fields.items() if field.is_required())
