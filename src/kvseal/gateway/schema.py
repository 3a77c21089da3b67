"""The bodies of requests: which fields there are, and what each may hold.

Every field either works or is refused by name; nothing is ignored. Fields that we lack may be sent with the
value that asks for nothing (``n: 1``, ``logprobs: false``), as many clients do. The exceptions are ``user``
and ``safety_identifier``, which never had an effect on an answer: they are checked, and used for nothing,
least of all as an identity (G9).
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from kvseal.core.errors import Code
from kvseal.gateway.refusals import Refused

MOST_STOP_STRINGS: Final = 4
LONGEST_STOP_STRING: Final = 256  # characters
_LONGEST_NAME: Final = 512

_Fraction = Annotated[float, Meta(gt=0, le=1)]
_Temperature = Annotated[float, Meta(ge=0, le=2)]
_Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Name = Annotated[str, Meta(max_length=_LONGEST_NAME)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``include_usage``: one more chunk at the end, with the counts."""

    include_usage: bool | None = None


class Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both endpoints take. ``null`` everywhere means the default."""

    model: str
    temperature: _Temperature | None = None
    top_p: _Fraction | None = None
    seed: _Seed | None = None
    stop: str | list[str] | None = None
    max_tokens: _Count | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: _Name | None = None
    safety_identifier: _Name | None = None


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """A part of a message's content. There are no parts but text."""

    text: str


class ChatMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """The parts stand one after another, with nothing between them, as chat templates write them."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatRequest(Common, frozen=True, kw_only=True):
    """Body of ``/v1/chat/completions``."""

    messages: list[ChatMessage]
    max_completion_tokens: _Count | None = None


class CompletionRequest(Common, frozen=True, kw_only=True):
    """Body of ``/v1/completions``. One prompt: text, or token ids; each may stand in a list of one."""

    prompt: str | list[str | _TokenId | list[_TokenId]]


@dataclass(frozen=True, slots=True)
class Options:
    """What a request asks for beyond its prompt, with the defaults filled in."""

    temperature: float
    top_p: float
    seed: int | None
    stop: tuple[str, ...]
    max_tokens: int | None
    ignore_eos: bool
    stream: bool
    include_usage: bool


# Field -> the values that ask for nothing. `null` always does.
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "metadata": ({},),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "prompt_cache_key": (),
}
_NEUTRAL_CHAT: Final[dict[str, tuple[Any, ...]]] = _NEUTRAL | {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),  # without tools there is nothing to choose
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
}
_NEUTRAL_COMPLETION: Final[dict[str, tuple[Any, ...]]] = _NEUTRAL | {
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (),
    "suffix": ("",),
}
# What clients send back of the messages that they got.
_NEUTRAL_MESSAGE: Final[dict[str, tuple[Any, ...]]] = {
    "name": (),
    "refusal": (),
    "audio": (),
    "annotations": ([],),
    "tool_calls": ([],),
    "tool_call_id": (),
    "function_call": (),
}


def read_chat(body: Any) -> ChatRequest:
    """The request in a parsed body. Raises Refused, naming the field."""
    body = _without_neutral(body, _NEUTRAL_CHAT, "")
    if isinstance(body, dict) and isinstance(messages := body.get("messages"), list):
        body["messages"] = [
            _without_neutral(message, _NEUTRAL_MESSAGE, f"messages[{i}].")
            for i, message in enumerate(messages)
        ]
    request = _converted(body, ChatRequest)
    if not request.messages:
        raise Refused(Code.EMPTY_PROMPT, "messages is empty: send at least one message.", param="messages")
    most = request.max_completion_tokens
    if most is not None and request.max_tokens is not None and most != request.max_tokens:
        raise Refused(
            Code.INVALID_REQUEST,
            f"max_tokens is {request.max_tokens} and max_completion_tokens is {most}: send one of them.",
            param="max_tokens",
        )
    return request


def read_completion(body: Any) -> CompletionRequest:
    """The request in a parsed body. Raises Refused, naming the field."""
    return _converted(_without_neutral(body, _NEUTRAL_COMPLETION, ""), CompletionRequest)


def single_prompt(prompt: str | list[str | int | list[int]]) -> str | tuple[int, ...]:
    """The one prompt of a completion request, as text or as token ids. Raises Refused where there are
    more.
    """
    match prompt:
        case str():
            return prompt
        case []:
            raise Refused(Code.EMPTY_PROMPT, "prompt is empty.", param="prompt")
        case [str() as text]:
            return text
        case [list() as ids]:
            return tuple(ids)
        case [int(), *_]:
            ids = [token for token in prompt if isinstance(token, int)]
            if len(ids) == len(prompt):
                return tuple(ids)
            raise Refused(Code.INVALID_REQUEST, "prompt mixes token ids with other things.", param="prompt")
        case _:
            raise Refused(
                Code.INVALID_REQUEST,
                "prompt holds more than one prompt, which is not supported: send a request for each.",
                param="prompt",
            )


def options(request: ChatRequest | CompletionRequest) -> Options:
    """The request's options with OpenAI's defaults. Raises Refused for those that do not go together."""
    streamed = bool(request.stream)
    if request.stream_options is not None and not streamed:
        raise Refused(
            Code.INVALID_REQUEST, "stream_options goes with stream: true only.", param="stream_options"
        )
    most = request.max_tokens
    if most is None and isinstance(request, ChatRequest):
        most = request.max_completion_tokens
    return Options(
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        seed=request.seed,
        stop=_stop_strings(request.stop),
        max_tokens=most,
        ignore_eos=bool(request.ignore_eos),
        stream=streamed,
        include_usage=request.stream_options is not None and bool(request.stream_options.include_usage),
    )


def _stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    strings = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    why = None
    if len(strings) > MOST_STOP_STRINGS:
        why = f"has {len(strings)} strings, and may have {MOST_STOP_STRINGS}"
    elif not all(strings):
        why = "holds an empty string, which would end every answer before it began"
    elif any(len(text) > LONGEST_STOP_STRING for text in strings):
        why = f"holds a string of more than {LONGEST_STOP_STRING} characters"
    if why is not None:
        raise Refused(Code.INVALID_REQUEST, f"stop {why}.", param="stop")
    return strings


def _without_neutral(body: Any, neutral: dict[str, tuple[Any, ...]], path: str) -> Any:
    """``body`` without the fields that we lack, if all of them ask for nothing."""
    if not isinstance(body, dict):
        return body
    for field in body.keys() & neutral.keys():
        value = body[field]
        if value is not None and not any(_same(value, other) for other in neutral[field]):
            raise Refused(
                Code.INVALID_REQUEST,
                f"{path}{field} is not supported{_allowed(neutral[field])}.",
                param=path + field,
            )
    return {field: value for field, value in body.items() if field not in neutral}


def _same(value: Any, other: Any) -> bool:
    # In Python True == 1; in JSON it is not.
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _allowed(values: tuple[Any, ...]) -> str:
    if not values:
        return ""
    return f" (other than {' or '.join(msgspec.json.encode(value).decode() for value in values)})"


_Request = TypeVar("_Request", ChatRequest, CompletionRequest)


def _converted(body: Any, kind: type[_Request]) -> _Request:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None  # its cause could carry content into a log


def _named(text: str) -> Refused:
    """msgspec's sentence, such as "Expected `str`, got `int` - at `$.messages[0].role`", with its field cut
    out.
    """
    what, _, place = text.partition(" - at `$")
    field = place.rstrip("`").removeprefix(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL):
        field = ".".join(filter(None, (field, unknown[1][:100])))
        return Refused(Code.INVALID_REQUEST, f"{field} is not a field of this request.", param=field)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        field = ".".join(filter(None, (field, missing[1])))
        return Refused(Code.INVALID_REQUEST, f"{field} is missing.", param=field)
    return Refused(
        Code.INVALID_REQUEST, f"{field or 'The body'}: {what[:1].lower()}{what[1:]}.", param=field or None
    )
