"""Start-up and run-time logs: one file may hold several servers, several starts of one, or a mixture.

Lines are told apart by what collectors put in front of them (`prefixes`); within one stream, by the start-up
line of each process. A capacity line that could be of two servers is given to both: the worse reading is
then judged.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from kvseal.fleet.engine_lines import NEEDLES, Kind, Place, Reading, read_line
from kvseal.fleet.facts import Fact, Key, Note, Server
from kvseal.fleet.prefixes import unprefix
from kvseal.fleet.streams import Progress, Unreadable, lines_with

MAX_SERVERS: Final = 512
_IDENTITY: Final = (Key.ROLE, Key.HOST, Key.PORT, Key.MODEL)


@dataclass
class _Process:
    name: str
    engine: str
    facts: list[Fact] = field(default_factory=list)
    capacity: str = "none"
    """none, unsure (the line could be another's), sure"""
    events: dict[Key, Fact] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[object, ...]:
        return (self.engine, *(self.value(key) for key in _IDENTITY))

    def value(self, key: Key) -> object:
        return next((fact.value for fact in self.facts if fact.key is key), None)

    def add(self, facts: tuple[Fact, ...]) -> None:
        known = {(fact.key, fact.value) for fact in self.facts}
        self.facts += [fact for fact in facts if (fact.key, fact.value) not in known]

    def count(self, fact: Fact) -> None:
        seen = self.events.get(fact.key)
        self.events[fact.key] = replace(seen, count=seen.count + 1) if seen else fact

    def server(self) -> Server:
        events = [replace(fact, value=fact.count) for fact in self.events.values()]
        return Server(self.name).plus([*self.facts, *events])


class LogReader:
    """Collects the servers of one log file."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._streams: dict[str, list[_Process]] = {}
        self._restarts = 0

    def line(self, number: int, raw: str) -> None:
        stream, text = unprefix(raw)
        reading = read_line(Place(self._name, number, text))
        if reading is None:
            return
        processes = self._streams.setdefault(stream, [])
        match reading.kind:
            case Kind.START:
                self._start(stream, processes, reading)
            case Kind.CAPACITY:
                self._capacity(stream, processes, reading)
            case Kind.EVENT:
                self._event(stream, processes, reading)

    def _start(self, stream: str, processes: list[_Process], reading: Reading) -> None:
        fresh = _Process(self._label(stream), reading.engine)
        fresh.add(reading.facts)
        last = processes[-1] if processes else None
        # vLLM says who it is in several lines (version, arguments, engine): they belong together until the
        # pool is known.
        if last is not None and last.engine == reading.engine == "vllm" and last.capacity == "none":
            last.add(reading.facts)
            return
        for index, known in enumerate(processes):
            if known.identity == fresh.identity:
                self._restarts += 1  # the same server again: what it says now is what runs
                fresh.events = known.events
                fresh.name = known.name
                processes[index] = fresh
                return
        if sum(map(len, self._streams.values())) < MAX_SERVERS:
            processes.append(fresh)

    def _capacity(self, stream: str, processes: list[_Process], reading: Reading) -> None:
        own = [process for process in processes if process.engine == reading.engine]
        if not own:
            own = [self._nameless(stream, processes, reading.engine)]
        waiting = [process for process in own if process.capacity != "sure"] or own[-1:]
        certain = len(waiting) == 1 and waiting[0].capacity != "unsure"
        for process in waiting:
            process.add(reading.facts)
            process.capacity = "sure" if certain else "unsure"

    def _event(self, stream: str, processes: list[_Process], reading: Reading) -> None:
        own = [process for process in processes if process.engine == reading.engine]
        fitting = [
            p
            for p in own
            if reading.role_hint is None or p.value(Key.ROLE) in {reading.role_hint, "both", None}
        ]
        chosen = (fitting or own)[-1] if own else self._nameless(stream, processes, reading.engine)
        for fact in reading.facts:
            chosen.count(fact)

    def _nameless(self, stream: str, processes: list[_Process], engine: str) -> _Process:
        """A log that begins after the start-up line still says what it says."""
        process = _Process(self._label(stream), engine)
        processes.append(process)
        return process

    def _label(self, stream: str) -> str:
        count = sum(map(len, self._streams.values()))
        base = f"{self._name}[{stream}]" if stream else self._name
        return base if count == 0 or (stream and not self._streams.get(stream)) else f"{base}#{count + 1}"

    def servers(self) -> list[Server]:
        found = []
        for processes in self._streams.values():
            for process in processes:
                server = process.server()
                if not server.of(Key.ENGINE) and server.facts:
                    here = server.facts[0].source
                    server = server.plus([Fact(Key.ENGINE, process.engine, here)])
                found.append(server)
        return [server for server in found if server.facts]

    def notes(self) -> list[Note]:
        return [Note("restarts", self._name, str(self._restarts))] if self._restarts else []


def read_log(path: str, progress: Progress | None = None) -> tuple[list[Server], list[Note]]:
    """Servers found in a log of any size, and what could not be read."""
    name = "stdin" if path == "-" else path
    reader = LogReader(name)
    trouble: list[Note] = []
    try:
        for line in lines_with(path, NEEDLES, progress):
            reader.line(line.number, line.text)
    except Unreadable as problem:
        trouble.append(Note(problem.code, name, problem.detail))
    servers = reader.servers()
    if not servers and not trouble:
        trouble.append(Note("no-known-line", name))
    return servers, [*trouble, *reader.notes()]
