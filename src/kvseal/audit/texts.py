"""Text in the two languages of the reports."""

from dataclasses import dataclass
from enum import StrEnum


class Language(StrEnum):
    EN = "en"
    DE = "de"


@dataclass(frozen=True)
class Text:
    en: str
    de: str

    def said(self, language: Language) -> str:
        return self.de if language is Language.DE else self.en

    def filled(self, **values: object) -> "Text":
        return Text(self.en.format(**values), self.de.format(**values))


@dataclass(frozen=True)
class Update(Text):
    """A fix that is nothing but an update; reports join several into one."""

    version: str = ""


def update_to(version: str) -> Update:
    return Update(f"Update to {version} or newer.", f"Auf {version} oder neuer aktualisieren.", version)
