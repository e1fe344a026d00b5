"""The relay process: hands the outbox to the writers, records scheduled changes, prunes, and watches the writers.

One duty a file, each in a loop of its own, so that none delays another: `relay` hands changes over, `scheduler` records
what is due, `pruner` forgets what ended long ago, `settler` writes
down what became of each day's operations before that. What they share: `leadership` (one relay process is
active for a host at a time), `transactions` (each kind of duty has connections of its own), `shared_poll` (one look at
the outbox for all hosts) and `duty` (a loop that goes on through outages). `host_relay` puts one host's together.
"""
