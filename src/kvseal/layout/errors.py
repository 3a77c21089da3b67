"""Why a model cannot be served. Both are for the operator, before any worker takes a request."""

from kvseal.core.errors import StartRefused


class ModelUnreadable(StartRefused):
    """The model folder lacks something or holds something that cannot be read; the text names the path."""


class UnsupportedModel(StartRefused):
    """Our pages cannot hold what a token of this model leaves behind.

    The text names the model type and the reason. Refused at start and by name: a layout that is nearly right
    gives answers that are nearly right (F18).
    """

    def __init__(self, model_type: str, reason: str) -> None:
        super().__init__(f"model type {model_type!r} is not supported: {reason}")
        self.model_type = model_type
        self.reason = reason
