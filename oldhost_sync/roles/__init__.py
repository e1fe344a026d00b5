"""Composes each role: settings in, a running process out. All composition is here."""
