"""The outbox: its changes are handed to the writer, read again after a loss, and deleted when they are old."""
