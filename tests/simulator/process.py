"""A simulator as a real process, that can be killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
END_SECONDS_MAX = 10.0


class SimulatorProcess:
    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "oldhost_simulator", "--port", "0", "--admin-port", "0", *options]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        if not ready:
            _, errors = self._process.communicate()
            raise RuntimeError(f"the simulator ended with {self._process.returncode}: {errors}")
        addresses = json.loads(ready)
        self.url: str = addresses["oldhost"]
        self.admin_url: str = addresses["admin"]
        self.pid = self._process.pid

    def end(self, signum: signal.Signals) -> int:
        """Sends the signal and waits; the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signum)
        self._process.communicate(timeout=END_SECONDS_MAX)
        return self._process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)
