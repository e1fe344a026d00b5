"""Changes on their way in: checked, recorded with the shadow state, scheduled, or refused."""
