"""Why there is no embedded model to serve."""

from kvseal.core.errors import StartRefused


class ModelUnavailable(StartRefused):
    """The embedded model cannot be had. The text names the cause and what to do about it."""
