"""Builds with faults in them, on purpose.

They show that tests can fail, and what the guards are for. They are never served to anybody.
"""
