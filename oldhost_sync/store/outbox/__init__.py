"""The outbox: handed to the writer, read again after a loss, forgotten when it is old."""
