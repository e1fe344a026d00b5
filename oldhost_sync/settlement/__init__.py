"""Settlement files: what became of each nonce, a file per day and host, kept where the database's retention and its
losses don't reach. docs/data.md has the format.

`settlement_file` is one file, `folder` those of a host, `day_settlement` writes the next one and releases days to
retention, `verification` checks all of them, against themselves and against the ledger. Nothing here decides what is
sent.
"""
