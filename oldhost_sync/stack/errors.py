"""What keeps the local product from starting or running; each message says what to do."""

from __future__ import annotations


class StackError(Exception):
    """Expected, and for the user of `up` or `demo` to mend."""
