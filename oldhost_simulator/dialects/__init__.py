"""How a host's verdicts look on the wire, and what a client's bytes ask."""
