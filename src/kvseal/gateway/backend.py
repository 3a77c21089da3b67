"""The seam between HTTP and dispatch: what the HTTP side asks of whatever runs the requests.

::

    HTTP  ──submit(tenant, prompt, …)──>  Backend
          <──Rejected | Stream──────────
          <──tokens, tokens, …, Terminal──  Stream  <──stop(index)──, <──abort(code)──

All of it is called from one event loop and none of it blocks.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from kvseal.core.errors import Code
from kvseal.core.ids import RequestId, TenantId
from kvseal.core.messages import Rejected, Terminal
from kvseal.core.sampling import SamplingParams


class Stream(Protocol):
    """One running request. Iterated once: tuples of token ids in order, then exactly one Terminal (G10)."""

    @property
    def request(self) -> RequestId:
        """Made by the server; unique, and safe in a header."""

    def __aiter__(self) -> AsyncIterator[tuple[int, ...] | Terminal]: ...

    def stop(self, index: int) -> None:
        """Token ``index`` (from 0, in the whole answer) is the last one needed. Called at most once. The
        Terminal still comes.
        """

    def abort(self, code: Code) -> None:
        """Give the request up. Called at most once, and never after the Terminal was taken; nothing is read
        afterwards.
        """


class Backend(Protocol):
    """Runs requests."""

    @property
    def model_id(self) -> str:
        """The name that clients write into ``model``."""

    @property
    def context(self) -> int:
        """Advertised context in tokens, prompt and answer together; 0 while no worker has joined (G1)."""

    @property
    def ready(self) -> tuple[bool, str]:
        """Whether requests would be answered now, and if not, why (a sentence that may be shown to
        anybody).
        """

    def status(self) -> Mapping[str, object]:
        """What an operator wants to see: workers, pools, counters. JSON types only, no content of
        requests.
        """

    def submit(
        self,
        tenant: TenantId,
        prompt: tuple[int, ...],
        max_tokens: int,
        sampling: SamplingParams,
        stop_ids: tuple[int, ...],
    ) -> Stream | Rejected:
        """Start a request, or say at once why not (G2). The caller checked it against ``context`` already."""
