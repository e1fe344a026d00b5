"""Each role put together: settings in, a running process out. All composition is here."""
