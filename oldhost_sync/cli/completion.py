"""What the shell completes: event types, as far as the rules know them."""

from __future__ import annotations

from oldhost_sync.environment import in_database, settings
from oldhost_sync.store.intake.rules import DEFAULT_RULES, rules_of


def event_types(incomplete: str) -> list[str]:
    """Those that begin with `incomplete`; without a database the default rules'."""
    try:
        config = settings()
        known = list(in_database(config, lambda connection: rules_of(connection, config.host)))
    except Exception:  # noqa: BLE001 - nobody reads an error in the middle of a command line
        known = sorted(DEFAULT_RULES)
    return [event_type for event_type in known if event_type.startswith(incomplete)]
