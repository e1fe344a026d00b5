"""The nonce ledger: which session may send, which nonce binds which bytes, how each ended, operators' decisions."""
