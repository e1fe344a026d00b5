"""The whole product on one machine: embedded servers, supervised processes, and the `up` command that joins them.

Nothing here is needed where MariaDB, Temporal and OldHost are given by address; each role then runs by itself.
"""
