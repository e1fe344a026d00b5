"""The relay process: hands the outbox to the writers, records scheduled changes, prunes, and watches the writers.

One duty a file, each in a loop of its own, so that none delays another: `relay` signals changes to the writer,
`scheduler` records due changes, `settler` writes each day's settlement file, `pruner` then deletes old rows. They
share: `leadership` (one relay process is active for a host at a time), `transactions` (each kind of duty has its own
connections), `shared_poll` (one query for all hosts) and `duty` (a loop that survives outages). `host_relay` combines
the duties of one host.
"""
