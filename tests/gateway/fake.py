"""A backend in memory that keeps every promise of the seam, and a small tokenizer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from kvseal.core.errors import Code
from kvseal.core.ids import RequestId, TenantId
from kvseal.core.messages import Aborted, Finished, Rejected, Terminal, Usage
from kvseal.core.sampling import SamplingParams
from kvseal.gateway.chat_template import ChatTemplate
from kvseal.gateway.tokenizer import Tokenizer

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|im_start|>", "<|im_end|>")
_CORPUS = (
    "The quick brown fox jumps over the lazy dog, and then it rests.",
    "Numbers such as 12, 345 and 6789 stand between words; so do (brackets) and 'quotes'.",
    "Größe, naïve, Ελλάδα, 世界 你好, 🦊🐶",
)


def tiny_tokenizer(normalizer: normalizers.Normalizer | None = None) -> tokenizers.Tokenizer:
    """Byte-level, as the models that we serve have it; every byte is in its vocabulary."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIAL],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 4, trainer)
    return tokenizer


def tiny_model_text() -> Tokenizer:
    """The tokenizer with a chat template, and `<|im_end|>` to end an answer."""
    tokenizer = tiny_tokenizer()
    end = tokenizer.get_vocab()["<|im_end|>"]
    return Tokenizer(tokenizer, (end,), ChatTemplate(CHATML, {"eos_token": "<|im_end|>"}, SPECIAL))


class Submitted(NamedTuple):
    """What the backend was asked for."""

    tenant: TenantId
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    stop_ids: tuple[int, ...]


Item = tuple[int, ...] | Terminal | float | Exception
"""Tokens, an end, seconds to wait, or a mistake."""
Script = Callable[[Submitted], Iterable[Item]]


@dataclass(eq=False)
class FakeStream:
    """Plays a script; a stop or an abort ends it as a worker would."""

    request: RequestId
    asked: Submitted
    script: Iterable[Item]
    stopped: list[int] = field(default_factory=list)
    aborted: list[Code] = field(default_factory=list)
    ended: bool = False
    _called: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aiter__(self) -> AsyncIterator[tuple[int, ...] | Terminal]:
        sent = 0
        for item in self.script:
            if isinstance(item, float):
                await self._wait(item)
                continue
            if isinstance(item, Exception):
                raise item
            if self._called.is_set():
                break
            if isinstance(item, tuple):
                sent += len(item)
                yield item
                await asyncio.sleep(0)
            else:
                self.ended = True
                yield item
                return
        if self.aborted or self.stopped:
            self.ended = True
            yield (
                Aborted(code=self.aborted[0]) if self.aborted else self.finished("stop", self.stopped[0] + 1)
            )

    def finished(self, reason: str, completion_tokens: int) -> Finished:
        """The end with true counts."""
        assert reason in {"stop", "length"}
        usage = Usage(prompt_tokens=len(self.asked.prompt), completion_tokens=completion_tokens)
        return Finished(reason="stop" if reason == "stop" else "length", usage=usage)

    def stop(self, index: int) -> None:
        """The seam's."""
        self.stopped.append(index)
        self._called.set()

    def abort(self, code: Code) -> None:
        """The seam's."""
        assert not self.ended, "aborted after its end"
        self.aborted.append(code)
        self._called.set()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._called.wait()
        except TimeoutError:
            pass


class FakeBackend:
    """Answers every request by a script: by default with the tokens of `answer`."""

    def __init__(self, answer: tuple[int, ...] = ()) -> None:
        self.model_id = "tiny/model"
        self.context = 512
        self.ready = (True, "ready")
        self.streams: list[FakeStream] = []
        self.rejection: Rejected | None = None
        self.answer = answer
        self.script: Script = self.speak
        self.cached_tokens = 0

    def status(self) -> dict[str, object]:
        """The seam's."""
        return {"model": self.model_id, "open_requests": 0}

    def submit(
        self,
        tenant: TenantId,
        prompt: tuple[int, ...],
        max_tokens: int,
        sampling: SamplingParams,
        stop_ids: tuple[int, ...],
    ) -> FakeStream | Rejected:
        """The seam's."""
        if self.rejection is not None:
            return self.rejection
        asked = Submitted(tenant, prompt, max_tokens, sampling, stop_ids)
        stream = FakeStream(RequestId(f"request{len(self.streams)}"), asked, self.script(asked))
        self.streams.append(stream)
        return stream

    @property
    def last(self) -> FakeStream:
        """The stream of the last request."""
        return self.streams[-1]

    def speak(self, asked: Submitted) -> Iterable[Item]:
        """`answer`, a token at a time, until its end, `max_tokens`, or a token of `stop_ids`."""
        sent = 0
        for token in self.answer[: asked.max_tokens]:
            sent += 1
            yield (token,)
            if token in asked.stop_ids:
                break
        cut = sent == asked.max_tokens
        yield self.end("length" if cut else "stop", asked, sent)

    def end(self, reason: str, asked: Submitted, sent: int) -> Finished:
        """The end with true counts."""
        usage = Usage(
            prompt_tokens=len(asked.prompt), completion_tokens=sent, cached_tokens=self.cached_tokens
        )
        return Finished(reason="stop" if reason == "stop" else "length", usage=usage)
