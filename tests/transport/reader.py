"""A decode worker in miniature: a transport, its landing pool, and the ends that it polled."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kvseal.core.ids import InstanceId
from kvseal.core.pulls import Outcome
from kvseal.memory import PrivatePool
from kvseal.transport import Ended, Transport

UNTOUCHED = 0xEE  # what landing pages hold before anything lands


def pages_of(*pages: int) -> NDArray[np.int64]:
    return np.array(pages, dtype=np.int64)


class Reader:
    """Closes its transport when the block is left."""

    def __init__(
        self, make: Callable[[Callable[[], None]], Transport], *, pages: int, page_bytes: int
    ) -> None:
        self.woken = threading.Event()
        self.transport = make(self.woken.set)
        self.landing = PrivatePool.create(pages, page_bytes)
        self.landing.array[:] = UNTOUCHED
        self.transport.register_landing(self.landing)
        self.ended: list[Ended] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.transport.close()
        self.landing.close()

    @property
    def array(self) -> NDArray[np.uint8]:
        return self.landing.array

    def wait(self, count: int, seconds: float = 20.0) -> list[Ended]:
        """Polls when woken until ``count`` reads have ended in all; no wakeup in time is a failure."""
        deadline = time.monotonic() + seconds
        while True:
            # Cleared before the poll: what comes later sets it again.
            self.woken.clear()
            self.ended += self.transport.poll()
            if len(self.ended) >= count:
                return self.ended
            left = deadline - time.monotonic()
            assert self.woken.wait(max(left, 0)), f"{len(self.ended)} of {count} reads ended in {seconds} s"

    def pull(self, peer: InstanceId, transfer: int, src: NDArray[np.int64], dst: NDArray[np.int64]) -> Ended:
        """One read, from post to end."""
        already = len(self.ended)
        self.transport.read(peer, transfer, src, dst)
        end = self.wait(already + 1)[-1]
        assert end.transfer == transfer
        return end

    def outcomes(self) -> dict[int, Outcome]:
        """Per transfer, after checking that each ended once."""
        assert len({end.transfer for end in self.ended}) == len(self.ended)
        return {end.transfer: end.outcome for end in self.ended}
