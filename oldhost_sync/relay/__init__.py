"""The relay process: hands the outbox to the writers, records scheduled changes, prunes, and watches the writers.

Each duty has a loop of its own (`duty`), so that none delays another. Of each host (`host_relay`): `relay` signals
changes to the writer, `scheduler` records due changes, `retention` writes settlement files and deletes old rows. Of all
hosts together: `fates`, and those that look whether all is well: `watchdog`, `promises`, `host_watch`, `relay_health`.
What these find is reported to `policy/rules/conditions`, and `conditions` writes the alerts. They share `leadership`
(one relay process is active for a host at a time) and `transactions` (each kind of duty has its own connections).
"""
