"""The options of a simulator. A name ends with its unit."""

import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Port 0 takes a free port; `first_nonce` is used only if the state file is empty."""

    host: str = "127.0.0.1"
    port: int = 0
    admin_port: int = 0
    latency_ms: float = 400.0
    jitter_ms: float = 0.0
    ban_seconds: float = 900.0
    state_file: Path | None = None
    seed: int = 0
    first_nonce: int = 1
    check_operations: bool = True

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def url(self, port: int) -> str:
        """The address of a port of ours."""
        return f"http://[{self.host}]:{port}" if self.family is socket.AF_INET6 else f"http://{self.host}:{port}"

    def __post_init__(self) -> None:
        for name in ("latency_ms", "jitter_ms", "ban_seconds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number from 0 on, not {getattr(self, name)}")
        for name in ("port", "admin_port"):
            if not 0 <= getattr(self, name) <= 65535:
                raise ValueError(f"{name} must be a port from 0 to 65535, not {getattr(self, name)}")
        if self.first_nonce < 0:
            raise ValueError(f"first_nonce must be a whole number from 0 on, not {self.first_nonce}")
