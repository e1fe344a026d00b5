"""The nonce ledger: who may send, which nonce binds which bytes, what became of each, and what operators decide."""
