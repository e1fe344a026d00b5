"""OldHost Sync keeps a single-connection, nonce-guarded legacy host in step with a fast application."""
