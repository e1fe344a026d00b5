"""What people and applications read."""
