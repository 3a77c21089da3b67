"""Everything that can go wrong, cut by what the reader of the error can do about it.

::

    KvsealError
    ├── StartRefused            the operator must change the configuration
    │   ├── CapacityMismatch    advertised context above what a pool holds (G1, F04)
    │   └── PeerMismatch        two workers would not mean the same by a page (F18)
    ├── ProtocolError           a peer sent what it may not send: its connection ends (G11)
    └── InvariantViolation      a bug of ours; never an answer to a client

What a *client* is told is not an exception but a value with a :class:`Code` (G2): see ``Rejected`` and
``Failed`` in :mod:`kvseal.core.messages`. Each code has one HTTP status and one OpenAI-style type::

    code                       status  type                    what the client can do
    context_length_exceeded    400     invalid_request_error   send a shorter prompt
    max_tokens_exceeded        400     invalid_request_error   ask for fewer tokens
    empty_prompt               400     invalid_request_error   send a prompt
    invalid_request            400     invalid_request_error   correct the field that is named
    invalid_api_key            401     authentication_error    send a valid key
    model_not_found            404     invalid_request_error   ask /v1/models
    not_found                  404     invalid_request_error   correct the path
    method_not_allowed         405     invalid_request_error   correct the method
    request_timeout            408     invalid_request_error   send the request faster
    request_too_large          413     invalid_request_error   send a smaller body
    rate_limit_exceeded        429     rate_limit_error        wait as long as retry-after says
    aborted                    499     aborted_error           nothing: the client went away
    integrity_check_failed     500     server_error            send it again
    internal_error             500     server_error            send it again, tell the operator
    no_capacity                503     server_error            send it again later
    worker_lost                503     server_error            send it again
    draining                   503     server_error            send it to another server
    deadline_exceeded          504     server_error            ask for less, or allow more time
"""

from enum import Enum


class KvsealError(Exception):
    """Root of the tree; never raised itself."""


class StartRefused(KvsealError):
    """The server must not start as configured. The text names the limit, the value and the option to
    change.
    """


class CapacityMismatch(StartRefused):
    """The advertised context does not fit a pool (G1)."""


class PeerMismatch(StartRefused):
    """Two workers do not agree on what a page means; the text names the field and both values."""


class ProtocolError(KvsealError):
    """A peer sent a message that it may not send. Its connection ends, the worker lives on (G11, G12)."""


class InvariantViolation(KvsealError):
    """Our own state is not what it must be. A bug: the process that finds it must not go on serving."""


class Code(Enum):
    """Why a request got no (complete) answer, as the client is told it."""

    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    MAX_TOKENS_EXCEEDED = "max_tokens_exceeded"
    EMPTY_PROMPT = "empty_prompt"
    INVALID_REQUEST = "invalid_request"
    INVALID_API_KEY = "invalid_api_key"
    MODEL_NOT_FOUND = "model_not_found"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    REQUEST_TIMEOUT = "request_timeout"
    REQUEST_TOO_LARGE = "request_too_large"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    ABORTED = "aborted"
    INTEGRITY_CHECK_FAILED = "integrity_check_failed"
    INTERNAL_ERROR = "internal_error"
    NO_CAPACITY = "no_capacity"
    WORKER_LOST = "worker_lost"
    DRAINING = "draining"
    DEADLINE_EXCEEDED = "deadline_exceeded"

    @property
    def status(self) -> int:
        """The HTTP status that goes with the code."""
        return _STATUS.get(self, 400)

    @property
    def type(self) -> str:
        """The ``error.type`` of the OpenAI error object that goes with the code."""
        match self.status:
            case 401:
                return "authentication_error"
            case 429:
                return "rate_limit_error"
            case 499:
                return "aborted_error"
            case status:
                return "server_error" if status >= 500 else "invalid_request_error"


_STATUS = {
    Code.INVALID_API_KEY: 401,
    Code.MODEL_NOT_FOUND: 404,
    Code.NOT_FOUND: 404,
    Code.METHOD_NOT_ALLOWED: 405,
    Code.REQUEST_TIMEOUT: 408,
    Code.REQUEST_TOO_LARGE: 413,
    Code.RATE_LIMIT_EXCEEDED: 429,
    Code.ABORTED: 499,
    Code.INTEGRITY_CHECK_FAILED: 500,
    Code.INTERNAL_ERROR: 500,
    Code.NO_CAPACITY: 503,
    Code.WORKER_LOST: 503,
    Code.DRAINING: 503,
    Code.DEADLINE_EXCEEDED: 504,
}
