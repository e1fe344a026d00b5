"""What a worker knows of itself and of the others: readiness, releases, and who has ended."""
