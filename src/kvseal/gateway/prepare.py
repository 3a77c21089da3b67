"""From a body to what the backend can run: parse, check, render, tokenize, admit. Pure; runs in a thread.

The order is that of the cost: nothing is tokenized for a request that is refused anyway.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kvseal.core import guards
from kvseal.core.errors import Code
from kvseal.core.messages import Rejected
from kvseal.gateway import schema, strict_json
from kvseal.gateway.chat_template import Turn
from kvseal.gateway.refusals import Refused
from kvseal.gateway.tokenizer import Tokenizer, TooLong

_PROMPT_END: Final = 4  # tokens that a continuation's first token is shown behind


@dataclass(frozen=True, slots=True)
class Serving:
    """What the server serves at the moment. ``context`` in tokens, prompt and answer together."""

    model_id: str
    context: int
    default_max_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """An admitted request. ``prompt_end``: see :class:`~kvseal.gateway.detokenizer.Detokenizer`."""

    prompt: tuple[int, ...]
    prompt_end: tuple[int, ...]
    max_tokens: int
    options: schema.Options


Prepare = Callable[[bytes, Tokenizer, Serving], Plan]


def prepare_chat(body: bytes, tokenizer: Tokenizer, serving: Serving) -> Plan:
    """The plan for a body of ``/v1/chat/completions``. Raises Refused."""
    request = schema.read_chat(strict_json.parse(body))
    _check_model(request.model, serving)
    options = schema.options(request)
    if tokenizer.template is None:
        raise Refused(
            Code.INVALID_REQUEST, "This model has no chat template: use /v1/completions.", param="model"
        )
    # OpenAI's newer name for the same role; templates know the older one.
    turns = [
        Turn("system" if message.role == "developer" else message.role, message.text)
        for message in request.messages
    ]
    prompt = tokenizer.encode_chat(tokenizer.template.render(turns), serving.context)
    return _plan(prompt, (), options, serving, "messages")


def prepare_completion(body: bytes, tokenizer: Tokenizer, serving: Serving) -> Plan:
    """The plan for a body of ``/v1/completions``. Raises Refused."""
    request = schema.read_completion(strict_json.parse(body))
    _check_model(request.model, serving)
    options = schema.options(request)
    given = schema.single_prompt(request.prompt)
    if isinstance(given, str):
        prompt = tokenizer.encode_prompt(given, serving.context)
    else:
        prompt = given
        largest = max(given, default=0)
        if largest >= tokenizer.vocabulary:
            raise Refused(
                Code.INVALID_REQUEST,
                f"prompt holds the token id {largest}; this model's end at {tokenizer.vocabulary - 1}.",
                param="prompt",
            )
    end = () if isinstance(prompt, TooLong) else prompt[-_PROMPT_END:]
    return _plan(prompt, end, options, serving, "prompt")


def _check_model(name: str, serving: Serving) -> None:
    if name != serving.model_id:
        raise Refused(
            Code.MODEL_NOT_FOUND,
            f"The model {name[:100]!r} does not exist here: /v1/models lists those that do.",
            param="model",
        )


def _plan(
    prompt: tuple[int, ...] | TooLong,
    prompt_end: tuple[int, ...],
    options: schema.Options,
    serving: Serving,
    param: str,
) -> Plan:
    if isinstance(prompt, TooLong):
        raise Refused(
            Code.CONTEXT_LENGTH_EXCEEDED,
            f"This model's maximum context length is {serving.context} tokens. However, your prompt has at "
            f"least {prompt.at_least} tokens.",
            param=param,
        )
    left = serving.context - len(prompt)
    max_tokens = options.max_tokens or max(1, min(serving.default_max_tokens, left))
    verdict = guards.g2_refusal(prompt, max_tokens, serving.context)
    if isinstance(verdict, Rejected):
        raise Refused.by(verdict, param="max_tokens" if verdict.code is Code.MAX_TOKENS_EXCEEDED else param)
    return Plan(verdict.prompt, prompt_end, max_tokens, options)
