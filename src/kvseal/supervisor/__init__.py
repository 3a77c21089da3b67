"""Starts the processes of one server on one machine, watches, restarts and drains them."""
