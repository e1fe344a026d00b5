"""The whole product on one machine: embedded servers, supervised processes, and the `up` command that joins them.

Not needed if the addresses of MariaDB, Temporal and OldHost are given; each role then runs by itself.
"""
