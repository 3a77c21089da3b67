"""Builds with faults in them, on purpose: to show that tests can fail, and what the guards are for. Never served to anybody."""
