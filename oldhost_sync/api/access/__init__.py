"""Who may do what, and how much of it: tokens, quotas, doors, and strangers."""
