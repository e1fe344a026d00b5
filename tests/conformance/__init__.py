import pytest

# The suite's parts are no test modules themselves; what they assert is to be explained all the same.
pytest.register_assert_rewrite(
    *(f"tests.conformance.ledger_{part}" for part in ("fates", "halts", "reserving", "sending", "takeover", "world"))
)
