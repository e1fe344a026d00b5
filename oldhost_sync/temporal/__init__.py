"""Our part of Temporal: the connection, what is encrypted, and how the writer is asked and watched."""
