"""Settlement files: the end of each nonce, one file per day and host, safe from the database's retention and from its
losses. docs/data.md has the format.

`settlement_file` has the files of a host and what one holds, `day_settlement` writes the next one and releases days to
retention, `verification` checks all of them, each by itself and against the ledger. Nothing here decides what is
sent.
"""
