"""What a client is told instead of an answer, in the shape that OpenAI's clients know.

::

    {"error": {"message": "…", "type": "invalid_request_error", "param": "stop", "code": "invalid_request"}}
"""

from typing import Final, Self

import msgspec

from kvseal.core.errors import Code
from kvseal.core.messages import Aborted, Failed, Rejected

RETRY_AFTER_S: Final = 1
_RETRY: Final = frozenset({Code.RATE_LIMIT_EXCEEDED, Code.NO_CAPACITY, Code.WORKER_LOST, Code.DRAINING})
_LONGEST_MESSAGE: Final = 1000  # characters; a message may name what the client wrote


class Refused(Exception):
    """A request ends without a (complete) answer. ``param`` names the field at fault, where there is one."""

    def __init__(self, code: Code, message: str, *, param: str | None = None) -> None:
        super().__init__(code.value)
        self.code = code
        self.message = message
        self.param = param

    @classmethod
    def by(cls, end: Rejected | Failed | Aborted, *, param: str | None = None) -> Self:
        """As the backend ended it."""
        return cls(end.code, end.message, param=param)

    @property
    def headers(self) -> dict[str, str]:
        """What else goes with the status."""
        headers = {"retry-after": str(RETRY_AFTER_S)} if self.code in _RETRY else {}
        if self.code is Code.INVALID_API_KEY:
            headers["www-authenticate"] = "Bearer"
        return headers

    def body(self) -> bytes:
        """The JSON object of an error response, or of an error event in a stream."""
        return error_body(self.code, self.message, self.param)


class _Error(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str


class _ErrorBody(msgspec.Struct):
    error: _Error


def error_body(code: Code, message: str, param: str | None = None) -> bytes:
    """The error object as JSON."""
    message = message[:_LONGEST_MESSAGE]
    return msgspec.json.encode(_ErrorBody(_Error(message, code.type, param, code.value)))
