"""The control wire. Either what we build (ordered, nothing lost but with the connection), or worse.

A connection joins two processes. When it is cut, each side notices in its own time, and messages on their
way are lost, or come late all the same (``Fault.STALE``): they carry the old instance's name.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.faults import Fault
from tests.simulation.trace import told

from kvseal.core.ids import InstanceId, short
from kvseal.core.messages import AnyMessage, decode, encode

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

LONGEST_DELAY_S = 60.0


@dataclass(slots=True, eq=False)
class Link:
    """One connection. ``last_s``: when the last message to each end arrives, by instance."""

    ends: tuple["Process", "Process"]
    up: bool = True
    lossy: bool = False
    noticed: int = 0
    last_s: dict[InstanceId, float] = field(default_factory=dict)

    def other(self, process: "Process") -> "Process":
        """The other end."""
        return self.ends[0] if process is self.ends[1] else self.ends[1]


class Wire:
    """All connections of a world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.links: list[Link] = []
        self.held: list[tuple[Link, Process, AnyMessage]] | None = (
            None  # directed scenarios hold messages back
        )

    def connect(self, one: "Process", other: "Process") -> None:
        """Both ends are alive and not connected: now they are."""
        if not (one.alive and other.alive):
            return
        if other.instance in one.links or one.instance in other.links:
            # An old connection that one side still believes in: a shell closes it before it opens another.
            if not (other.instance in one.links and one.links[other.instance].up):
                self.world.agenda.after(self.world.pace.connect_s, self.connect, one, other)
            return
        link = Link((one, other))
        one.links[other.instance] = other.links[one.instance] = link
        self.links.append(link)
        if self.world.trace:
            self.world.trace.note(self.world.agenda.now, one.name, f"connected with {other.name}")
        one.on_connected(other)
        other.on_connected(one)

    def send(self, sender: "Process", to: InstanceId, message: AnyMessage) -> None:
        """Put a message on its way."""
        link = sender.links.get(to)
        if link is None or not link.up:
            return
        world = self.world
        world.touch(message)
        if world.setup.codec:
            message = decode(encode(message))
        roll, now = world.dice.roll, world.agenda.now
        if roll(Fault.LOSS):
            link.lossy = True
            if world.trace:
                world.trace.note(now, sender.name, f"LOST {told(message, short)}")
            return
        arrives = now + world.rng.random() * world.pace.message_s
        if roll(Fault.DELAY):
            arrives += world.rng.random() ** 2 * LONGEST_DELAY_S
            world.settles(arrives)
        if roll(Fault.REORDER):
            arrives += world.rng.random() ** 4 * 5.0
        else:  # a stream: nothing overtakes
            arrives = link.last_s[to] = max(arrives, link.last_s.get(to, 0.0))
        receiver = link.other(sender)
        world.agenda.at(arrives, self.deliver, link, receiver, message)
        if roll(Fault.DUPLICATE):
            again = arrives + world.rng.random() ** 4 * 20.0
            world.settles(again)
            world.agenda.at(again, self.deliver, link, receiver, message)

    def deliver(self, link: Link, receiver: "Process", message: AnyMessage) -> None:
        """It arrives."""
        world = self.world
        if not receiver.alive or (not link.up and not world.dice.roll(Fault.STALE)):
            return
        if self.held is not None:
            self.held.append((link, receiver, message))
            return
        sender = link.other(receiver)
        if world.trace:
            world.trace.note(world.agenda.now, receiver.name, f"from {sender.name}: {told(message, short)}")
        receiver.on_message(sender.instance, message)
        if link.up and world.dice.roll(Fault.CUT):
            self.cut(link)

    def cut(self, link: Link) -> None:
        """The connection breaks. Each side that lives will notice."""
        if not link.up:
            return
        link.up = False
        self.links.remove(link)
        world = self.world
        if world.trace:
            world.trace.note(world.agenda.now, link.ends[0].name, f"CUT from {link.ends[1].name}")
        for end in link.ends:
            world.agenda.after(world.rng.random() * world.pace.notice_s, self._noticed, link, end)

    def _noticed(self, link: Link, end: "Process") -> None:
        world, other = self.world, link.other(end)
        link.noticed += 1
        end.links.pop(other.instance, None)
        if end.alive:
            if world.trace:
                world.trace.note(world.agenda.now, end.name, f"notices the loss of {other.name}")
            end.on_lost(other.instance)
        if link.noticed == 2 and end.alive and other.alive:
            world.agenda.after(world.rng.random() * world.pace.connect_s, self.connect, *link.ends)
