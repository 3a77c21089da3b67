"""YAML whose strings remember their lines, read with limits: no tags, no alias bombs, no endless nesting."""

from typing import Any, Final

import yaml

_MAX_ALIASES: Final = 200
_MAX_DEPTH: Final = 60
_MAX_DOCUMENTS: Final = 200


class Marked(str):
    """A string from a YAML file. `line` counts from 1; for block scalars it is the line of the first text."""

    __slots__ = ("line",)
    line: int


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._aliases = 0
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self._aliases += 1
            if self._aliases > _MAX_ALIASES:
                raise yaml.YAMLError("too many aliases")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise yaml.YAMLError("nested too deeply")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def _marked(_loader: Any, node: Any) -> Marked:
    text = Marked(node.value)
    text.line = node.start_mark.line + (2 if node.style in {"|", ">"} else 1)
    return text


_Loader.add_constructor("tag:yaml.org,2002:str", _marked)
for _tag in ("timestamp", "binary"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _marked)


def load_documents(text: str) -> list[Any] | None:
    """All documents, or None where it is not YAML within the limits."""
    documents: list[Any] = []
    try:
        loader = _Loader(text)
        try:
            while loader.check_data():  # type: ignore[no-untyped-call]
                documents.append(loader.get_data())
                if len(documents) > _MAX_DOCUMENTS:
                    return None
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, AttributeError, KeyError):
        return None
    return documents


def line_of(value: object) -> int | None:
    return value.line if isinstance(value, Marked) else None
