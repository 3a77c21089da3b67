"""Reads a model folder's text side: tokenizer, chat template, and the tokens that end an answer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import tokenizers

from kvseal.core.errors import StartRefused
from kvseal.gateway.chat_template import ChatTemplate
from kvseal.gateway.tokenizer import Tokenizer

_NAMED_TOKENS: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder. Raises StartRefused, naming the file at fault."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise StartRefused(f"{path} is missing: only models with a `tokenizer.json` can be served")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise StartRefused(f"{path} cannot be read: {error}") from error
    settings = _read(folder / "tokenizer_config.json")
    names = {name: text for name in _NAMED_TOKENS if (text := _content(settings.get(name)))}
    source = _template_source(folder, settings)
    special = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    template = None if source is None else ChatTemplate(source, names, special)
    return Tokenizer(tokenizer, tuple(_stop_ids(folder, tokenizer, names)), template)


def _stop_ids(folder: Path, tokenizer: tokenizers.Tokenizer, names: Mapping[str, str]) -> set[int]:
    """Generation settings and tokenizer each may name some: all of them count."""
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        found = _read(folder / name).get("eos_token_id")
        if isinstance(found, int):
            found = [found]
        if isinstance(found, list) and found:
            ids |= {token for token in found if isinstance(token, int) and token >= 0}
            break
    eos = tokenizer.token_to_id(names["eos_token"]) if "eos_token" in names else None
    return ids if eos is None else ids | {eos}


def _template_source(folder: Path, settings: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    source = settings.get("chat_template")
    if isinstance(source, list):  # several, by name
        named = {item.get("name"): item.get("template") for item in source if isinstance(item, dict)}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _content(token: Any) -> str | None:
    """A special token stands as its text, or as an object that has it."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _read(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no file."""
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise StartRefused(f"{path} is not what it should be: {error}") from error
