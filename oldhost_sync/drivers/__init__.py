"""Drivers: each speaks one kind of host's wire. Bytes in, events out; no socket, clock, randomness, log or store."""
