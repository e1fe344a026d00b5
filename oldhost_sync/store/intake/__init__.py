"""Changes on their way in: checked, recorded with the shadow state, kept for later, or refused."""
