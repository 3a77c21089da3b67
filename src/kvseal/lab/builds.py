"""Faulty builds of the workers and the gateway, put together from named faults.

A fault is a string in a process's settings, which only the modules of the lab accept:

``placeholder``    the engine fault of 2026: a prompt that does not fit prefill's pool becomes a one-token
                   placeholder whose page is sent, and decode starts with all the pages that it reserved
``without:G5``     a guard is replaced as :mod:`kvseal.lab.ablation` says
``transport:{…}``  a :class:`kvseal.transport.Schedule` as JSON: what goes wrong with which read
"""

from collections.abc import Callable

import msgspec

from kvseal.lab.ablation import remove
from kvseal.process import SettingsUnreadable
from kvseal.transport import FaultyTransport, Schedule, Transport
from kvseal.workers.process import Wakeup, Wrap, plain

# The five breaks in the chain of the incident: capacity is the gateway's to check, the rest the workers'.
PLACEHOLDER_GATEWAY = ("G1",)
PLACEHOLDER_WORKER = ("G2", "G5", "G6", "G8")


def build_worker(faults: tuple[str, ...]) -> Wrap:
    """Put the faults in. Raises SettingsUnreadable for one that is not known."""
    wrap: Wrap = plain
    for fault in faults:
        kind, _, detail = fault.partition(":")
        match kind:
            case "placeholder":
                remove(*PLACEHOLDER_WORKER)
            case "without":
                _remove(detail)
            case "transport":
                wrap = _scheduled(msgspec.json.decode(detail, type=Schedule))
            case _:
                raise SettingsUnreadable(f"no fault is called {fault!r}")
    return wrap


def build_gateway(faults: tuple[str, ...]) -> None:
    """The gateway's part: with ``placeholder`` it advertises what it was told to."""
    for fault in faults:
        kind, _, detail = fault.partition(":")
        match kind:
            case "placeholder":
                remove(*PLACEHOLDER_GATEWAY)
            case "without":
                _remove(detail)
            case _:
                raise SettingsUnreadable(f"no fault of a gateway is called {fault!r}")


def _remove(identity: str) -> None:
    try:
        remove(identity)
    except KeyError as error:
        raise SettingsUnreadable(error.args[0]) from error


def _scheduled(schedule: Schedule) -> Wrap:
    def wrap(make: Callable[[Wakeup], Transport], wakeup: Wakeup) -> Transport:
        return FaultyTransport(make, wakeup, schedule)

    return wrap
