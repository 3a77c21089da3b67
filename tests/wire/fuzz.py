"""Damaged and made-up bytes for everything that reads bytes of a peer: decoder, frames, handshake.

Run it as a script: `python tests/wire/fuzz.py --count 1000000 --seed 1`. Each input depends on (seed, index)
alone; `--only INDEX` replays one. The only answers allowed are a message or a ProtocolError; what is held is
bounded.
"""

import argparse
import math
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol, get_args

import msgspec
from msgspec import inspect

from kvseal.core.errors import ProtocolError
from kvseal.core.ids import InstanceId
from kvseal.core.messages import AnyMessage, Hello, decode, decode_hello, encode
from kvseal.wire.errors import FrameTooLong
from kvseal.wire.framing import HEADER_BYTES, FrameDecoder
from kvseal.wire.handshake import Answer, Established, Handshake, Side

MESSAGE_TYPES: tuple[type[msgspec.Struct], ...] = get_args(AnyMessage)
MAX_GROWTH_BYTES = 128 * 2**20
CORPUS_SIZE = 400
SECRET = b"s" * 32
ME = Hello(role="prefill", instance=InstanceId(b"p" * 16))


# --- values of any type of ours ------------------------------------------------------------------------


class Source(Protocol):
    """Where values come from: a random generator here, Hypothesis in the tests."""

    def integer(self) -> int: ...
    def number(self) -> float: ...
    def text(self) -> str: ...
    def blob(self) -> bytes: ...
    def length(self) -> int: ...
    def pick(self, options: Sequence[Any]) -> Any: ...


def value(kind: inspect.Type, source: Source) -> Any:
    """A value of the type; read from the type itself, so that no message and no field can be forgotten."""
    match kind:
        case inspect.StructType():
            return kind.cls(**{field.name: value(field.type, source) for field in kind.fields})
        case inspect.UnionType():
            return value(source.pick(kind.types), source)
        case inspect.VarTupleType():
            return tuple(value(kind.item_type, source) for _ in range(source.length()))
        case inspect.DictType():
            pairs = range(source.length())
            return {value(kind.key_type, source): value(kind.value_type, source) for _ in pairs}
        case inspect.EnumType():
            return source.pick(list(kind.cls))
        case inspect.LiteralType():
            return source.pick(kind.values)
        case inspect.NoneType():
            return None
        case _:
            return _leaf(kind, source)


def _leaf(kind: inspect.Type, source: Source) -> Any:
    match kind:
        case inspect.BoolType():
            return source.pick((False, True))
        case inspect.IntType():
            return source.integer()
        case inspect.FloatType():
            return source.number()
        case inspect.StrType():
            return source.text()
        case inspect.BytesType():
            return source.blob()
        case _:
            raise NotImplementedError(f"teach the generator about {kind}")


class RandomSource:
    """Values from a random generator, with a liking for edges."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def integer(self) -> int:
        rng = self._rng
        bits = rng.choice((1, 7, 8, 16, 31, 32, 63, 64))
        return rng.getrandbits(bits) if bits == 64 or rng.random() < 0.7 else -rng.getrandbits(bits)

    def number(self) -> float:
        edges = (0.0, -0.0, 1.0, 1e308, 5e-324, math.inf, -math.inf, math.nan)
        return self._rng.choice((*edges, self._rng.random()))

    def text(self) -> str:
        return "".join(self._rng.choice("aZ9 \0é\u20ac\U0001f512") for _ in range(self.length()))

    def blob(self) -> bytes:
        return self._rng.randbytes(self._rng.choice((0, 16, 16, 16, self.length())))

    def length(self) -> int:
        return self._rng.choice((0, 1, 2, 3, 15, 16, 17, 33))

    def pick(self, options: Sequence[Any]) -> Any:
        return self._rng.choice(options)


# --- damage --------------------------------------------------------------------------------------------

# Tags with a length behind them that is a lie most of the time, and the one tag that msgpack never uses.
LIES = [bytes([tag]) + length for tag in range(0xC4, 0xE0) for length in (b"", b"\xff" * 4, b"\0\0\0\1")]
LIES += [b"\xc1", b"\x91" * 200, b"\x81\xa1a" * 200]


def damaged(rng: Random, bodies: Sequence[bytes]) -> bytes:
    """A valid body with one to four wounds, or no body at all."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(64))
    body = bytearray(rng.choice(bodies))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(6):
            case 0 if at < len(body):
                body[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(body):
                body[at] = rng.choice((0, 0x7F, 0x80, 0x90, 0xA0, 0xC0, 0xC1, 0xFF))
            case 2:
                del body[at:]
            case 3:
                del body[at : at + rng.randrange(8)]
            case 4:
                other = rng.choice(bodies)
                body[at:] = other[rng.randrange(len(other) + 1) :]
            case _:
                body[at:at] = rng.choice(LIES)
    return bytes(body)


# --- what is fuzzed: each takes one input and says what became of it -----------------------------------


class Corpus(NamedTuple):
    """Valid bodies, of every type."""

    messages: list[bytes]
    hellos: list[bytes]


def make_corpus(seed: int) -> Corpus:
    source = RandomSource(Random(seed))
    kinds = [inspect.type_info(kind) for kind in MESSAGE_TYPES]
    messages = [encode(value(kinds[index % len(kinds)], source)) for index in range(CORPUS_SIZE)]
    hello = inspect.type_info(Hello)
    return Corpus(messages, [encode(value(hello, source)) for _ in range(CORPUS_SIZE // 10)])


def fuzz_decode(rng: Random, corpus: Corpus) -> str:
    return _read(damaged(rng, corpus.messages), decode)


def fuzz_hello(rng: Random, corpus: Corpus) -> str:
    return _read(damaged(rng, corpus.hellos), decode_hello)


def _read(body: bytes, read: Callable[[bytes], AnyMessage | Hello]) -> str:
    try:
        message = read(body)
    except ProtocolError:
        return "refused"
    again = encode(message)
    assert encode(read(again)) == again, "what was accepted does not survive a round trip"
    return "accepted"


def fuzz_frames(rng: Random, corpus: Corpus) -> str:
    """A stream of frames, damaged, in pieces of any size: whole frames come out, and little is held."""
    limit = rng.choice((16, 256, 4096))
    bodies = [rng.choice(corpus.messages) for _ in range(rng.randrange(6))]
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    intact = rng.random() < 0.3
    if not intact:
        stream = damaged(rng, [stream])
    decoder, got, at = FrameDecoder(limit), [], 0
    try:
        while at < len(stream):
            piece = stream[at : at + rng.choice((1, 3, 64, 5000))]
            at += len(piece)
            decoder.feed(piece)
            assert decoder.buffered_bytes <= HEADER_BYTES + limit + len(piece), "too much is held"
            while (body := decoder.take()) is not None:
                assert len(body) <= limit
                got.append(body)
    except FrameTooLong:
        assert not intact or max(map(len, bodies)) > limit
        assert decoder.buffered_bytes == 0
        return "refused"
    assert not intact or got == bodies
    assert sum(HEADER_BYTES + len(body) for body in got) <= len(stream)
    return "accepted"


def fuzz_handshake(rng: Random, corpus: Corpus) -> str:
    """Bodies that were overheard, damaged, made up or sent back: none of them gets in without the secret."""
    side = rng.choice(tuple(Side))
    other = Side.LISTENER if side is Side.DIALER else Side.DIALER
    victim = Handshake(side, SECRET, ME, rng.randbytes(32))
    # A stranger knows everything about the protocol but the secret.
    stranger = Handshake(other, b"x" * 32, ME, rng.randbytes(32))
    said = [victim.opening, stranger.opening, rng.choice(corpus.hellos)]
    try:
        for _ in range(2):
            body = rng.choice(said) if rng.random() < 0.6 else damaged(rng, said)
            match victim.receive(body):
                case Answer(proof):
                    said += [proof, proof[::-1], bytes(32)]
                case Established():
                    raise AssertionError("a stranger was let in")
    except ProtocolError:
        return "refused"
    raise AssertionError("the handshake neither ended nor failed")


TARGETS: tuple[tuple[Callable[[Random, Corpus], str], int], ...] = (
    (fuzz_decode, 6),
    (fuzz_hello, 1),
    (fuzz_frames, 2),
    (fuzz_handshake, 1),
)


# --- running -------------------------------------------------------------------------------------------


class Failure(AssertionError):
    """One input had another answer than those allowed. Says how to replay it."""


def run(seed: int, indices: Sequence[int], max_seconds: float = math.inf) -> Counter[str]:
    """Fuzzes with the inputs of these indices. The result counts what became of them, by target.

    Raises :class:`Failure` for the first input that broke something, or when memory has grown.
    """
    corpus = make_corpus(seed)
    targets = [target for target, weight in TARGETS for _ in range(weight)]
    outcomes: Counter[str] = Counter()
    deadline = time.monotonic() + max_seconds
    before = _peak_bytes()
    for index in indices:
        rng = Random((seed << 40) + index)
        target = rng.choice(targets)
        try:
            outcomes[f"{target.__name__} {target(rng, corpus)}"] += 1
        except Exception as error:
            raise Failure(f"{target.__name__}: replay with --seed {seed} --only {index}") from error
        if index % 1024 == 0 and time.monotonic() > deadline:
            break
    if (growth := _peak_bytes() - before) > MAX_GROWTH_BYTES:
        raise Failure(f"memory grew by {growth} bytes (--seed {seed})")
    return outcomes


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-seconds", type=float, default=900.0)
    parser.add_argument("--only", type=int, help="the index of one input")
    options = parser.parse_args()
    began = time.monotonic()
    indices = range(options.count) if options.only is None else range(options.only, options.only + 1)
    outcomes = run(options.seed, indices, options.max_seconds)
    seconds, total = time.monotonic() - began, sum(outcomes.values())
    for outcome, count in sorted(outcomes.items()):
        sys.stdout.write(f"{count:>10,}  {outcome}\n")
    peak = _peak_bytes() // 2**20
    sys.stdout.write(f"{total:>10,}  inputs in {seconds:.1f} s, peak {peak} MiB, no failure\n")
    if total < len(indices):
        sys.exit(f"stopped after --max-seconds {options.max_seconds}")


if __name__ == "__main__":
    main()
