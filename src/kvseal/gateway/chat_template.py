"""Conversations as text, by the model's own chat template, and what users cannot forge in it.

A template marks roles with special tokens (``<|im_end|>``). A user who types such a token into a message
would end the message and begin another in the system's name. So text of messages in which a special token
is spelt out is cut after the token's first character, and the pieces are tokenized apart: the model sees
the characters and not the token. Text without special tokens is not cut, and comes out as transformers'
``apply_chat_template`` has it, to the token. Templates that mark roles in ordinary characters (``[INST]``)
cannot be protected this way.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from kvseal.core.errors import Code, StartRefused
from kvseal.gateway.refusals import Refused

# Noncharacters: they mean nothing, so a text that holds all of them is not one.
_MARKS: Final = tuple(map(chr, range(0xFDD0, 0xFDF0)))


@dataclass(frozen=True, slots=True)
class Turn:
    """One message, as templates see it."""

    role: str
    content: str


def _local_now() -> datetime:
    return datetime.now().astimezone()


class ChatTemplate:
    """A compiled template. Safe to use from several threads."""

    def __init__(
        self,
        source: str,
        names: Mapping[str, str],
        special_tokens: Iterable[str],
        now: Callable[[], datetime] = _local_now,
    ) -> None:
        """``names``: the special tokens that templates call by name (``bos_token``). Raises StartRefused."""
        try:
            self._template = _environment(now).from_string(source)
        except jinja2.TemplateError as error:
            raise StartRefused(f"the model's chat template cannot be compiled: {error}") from error
        self._names = dict(names)
        # A token of one character cannot be cut.
        tokens = "|".join(re.escape(token) for token in special_tokens if len(token) > 1)
        # Looks ahead, so that tokens which overlap are all found.
        self._special = re.compile(f"(?=(?:{tokens or '(?!)'}))(.)", re.DOTALL)

    def render(self, turns: Sequence[Turn]) -> tuple[str, ...]:
        """The prompt for the next answer, in pieces to be tokenized apart: one, unless a special token was
        typed.

        Raises Refused where the template does not take the conversation.
        """
        mark = None
        if any(self._special.search(turn.content) for turn in turns):
            mark = next((m for m in _MARKS if not any(m in turn.content for turn in turns)), None)
            if mark is None:
                raise Refused(
                    Code.INVALID_REQUEST, "messages hold every Unicode noncharacter.", param="messages"
                )
            turns = [Turn(turn.role, self._special.sub(rf"\1{mark}", turn.content)) for turn in turns]
        try:
            text = self._template.render(
                messages=[{"role": turn.role, "content": turn.content} for turn in turns],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._names,
            )
        except jinja2.TemplateError as error:
            why = (error.message or "")[:200]
            raise Refused(
                Code.INVALID_REQUEST, f"The model's chat template refuses messages: {why}", param="messages"
            ) from error
        return tuple(text.split(mark)) if mark else (text,)


def _environment(now: Callable[[], datetime]) -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """What templates of Hugging Face models may rely on."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, jinja2.ext.loopcontrols],
        autoescape=False,  # the text goes to a tokenizer, not to a browser
    )

    def strftime_now(form: str) -> str:
        return now().strftime(form)

    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


class _Generation(jinja2.ext.Extension):
    """``{% generation %} … {% endgeneration %}`` marks the assistant's text for training; here it is just
    text.
    """

    tags = {"generation"}  # noqa: RUF012 - the base class has it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, **settings: Any) -> str:
    # Jinja's own filter escapes for HTML, which no model was trained on.
    return json.dumps(value, **({"ensure_ascii": False} | settings))


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
