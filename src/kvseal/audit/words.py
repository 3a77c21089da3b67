"""Words of the reports that belong to no rule, in both languages."""

from typing import Final

from kvseal.audit.judge import Verdict
from kvseal.audit.rule import Effect, Severity
from kvseal.audit.texts import Text
from kvseal.fleet.facts import Key, Note

VERDICT: Final = {
    Verdict.AFFECTED: Text("AFFECTED", "BETROFFEN"),
    Verdict.AT_RISK: Text("AT RISK", "GEFÄHRDET"),
    Verdict.NOT_AFFECTED: Text("NOT AFFECTED", "NICHT BETROFFEN"),
    Verdict.CANNOT_TELL: Text("CANNOT TELL", "NICHT ZU SAGEN"),
}
VERDICT_MEANS: Final = {
    Verdict.AFFECTED: Text(
        "Answers can be built from other requests' memory: a known fault and its conditions are all present.",
        "Antworten können aus dem Speicher fremder Anfragen entstehen: ein bekannter Fehler und "
        "seine Bedingungen "
        "sind gegeben.",
    ),
    Verdict.AT_RISK: Text(
        "No known fault is proven open, but what keeps requests apart is weak here.",
        "Kein bekannter Fehler ist nachgewiesen, aber die Trennung der Anfragen ist hier schwach.",
    ),
    Verdict.NOT_AFFECTED: Text(
        "None of the known faults that mix requests' memory applies to what was given.",
        "Keiner der bekannten Fehler, die Speicher von Anfragen mischen, trifft auf das Angegebene zu.",
    ),
    Verdict.CANNOT_TELL: Text(
        "The facts given do not suffice; see what could not be known.",
        "Die Angaben reichen nicht aus; siehe unten, was nicht bekannt war.",
    ),
}
AT_LEAST: Final = {
    Effect.AFFECTED: Text("proven so far: affected", "bisher nachgewiesen: betroffen"),
    Effect.AT_RISK: Text("proven so far: at risk", "bisher nachgewiesen: gefährdet"),
    Effect.NONE: Text("", ""),
}
SEVERITY: Final = {
    Severity.CRITICAL: Text("critical", "kritisch"),
    Severity.HIGH: Text("high", "hoch"),
    Severity.MEDIUM: Text("medium", "mittel"),
    Severity.LOW: Text("low", "niedrig"),
    Severity.INFO: Text("info", "Hinweis"),
}

TITLE: Final = Text("kvseal audit", "kvseal audit")
DATA: Final = Text("data {version} of {day}", "Daten {version} vom {day}")
STALE: Final = Text(
    "The advisory data is {age} days old (more than 60): update kvseal, newer faults are not in it.",
    "Die Daten sind {age} Tage alt (über 60): kvseal aktualisieren, neuere Fehler fehlen darin.",
)
SERVERS: Final = Text("What was found", "Was gefunden wurde")
CONFLICT: Final = Text(
    "sources disagree about {key}: {values}; the worst case is judged",
    "Quellen widersprechen sich bei {key}: {values}; beurteilt wird der schlimmste Fall",
)
FINDINGS: Final = Text("Findings", "Befunde")
NO_FINDINGS: Final = Text("none", "keine")
OTHER_KIND: Final = Text(
    "{count} of another kind (not a leak between requests)",
    "{count} anderer Art (kein Leck zwischen Anfragen)",
)
EVIDENCE: Final = Text("evidence", "Beleg")
MEANS: Final = Text("means", "heißt")
FIX: Final = Text("fix", "Abhilfe")
SOURCE: Final = Text("source", "Quelle")
SOURCES: Final = Text("sources", "Quellen")
SECONDARY: Final = Text("secondary source", "Sekundärquelle")
VERSIONS: Final = Text("versions", "Versionen")
DO_NOW: Final = Text("Do this now", "Jetzt tun")
NOTHING_TO_DO: Final = Text("nothing", "nichts")
GIVE_FACTS: Final = Text(
    "Give the start-up log, launch command or URL of every prefill and decode server.",
    "Start-Protokoll, Kommando oder URL jedes Prefill- und Decode-Servers angeben.",
)
AND_MORE: Final = Text("and {count} more", "und {count} weitere")
UNKNOWN: Final = Text("Could not be known", "Nicht bekannt")
DECIDES: Final = Text("the verdict waits for this", "davon hängt das Ergebnis ab")
NOTES: Final = Text("Notes", "Anmerkungen")
CHANGES: Final = Text("Since the baseline {name}", "Seit dem Vergleichsstand {name}")
NO_CHANGES: Final = Text("nothing moved", "nichts hat sich geändert")
WORSE: Final = Text("worse", "schlechter")
ASSUMED: Final = Text("default", "Voreinstellung")
FOOTER: Final = Text(
    "The verdict is about one request answered from another's memory. It rests on public reports; "
    "it is no proof of isolation. `kvseal probe` tests a running endpoint.",
    "Das Ergebnis betrifft Antworten aus dem Speicher fremder Anfragen. Es beruht auf "
    "öffentlichen Berichten und "
    "beweist keine Trennung. `kvseal probe` testet einen laufenden Endpunkt.",
)

_LOG: Final = "--log [role=]FILE"
_URL: Final = "--url [role=]URL"
HOW_TO_GET: Final = {
    Key.ENGINE: Text(f"{_LOG}, --command FILE or {_URL}", f"{_LOG}, --command FILE oder {_URL}"),
    Key.VERSION: Text(
        "--engine-version sglang==X.Y.Z, --packages FILE (pip freeze in the container) or the URL",
        "--engine-version sglang==X.Y.Z, --packages FILE (pip freeze im Container) oder die URL",
    ),
    Key.ROLE: Text(
        "the start-up log, launch command or URL of that server",
        "Start-Protokoll, Kommando oder URL dieses Servers",
    ),
    Key.POOL: Text(
        "max_total_num_tokens=… in the start-up log, or /server_info and /metrics by --url",
        "max_total_num_tokens=… im Start-Protokoll, oder /server_info und /metrics über --url",
    ),
    Key.CONTEXT: Text(
        "context_len=… in the start-up log, or /v1/models by --url",
        "context_len=… im Start-Protokoll, oder /v1/models über --url",
    ),
    Key.BACKEND: Text("the launch command or start-up log", "Kommando oder Start-Protokoll"),
    Key.RESERVED_DECODE: Text(
        "the launch command or start-up log of decode", "Kommando oder Start-Protokoll von Decode"
    ),
    Key.DEFERRED: Text(
        "--env [role=]FILE, made by `env` in the container",
        "--env [role=]FILE, mit `env` im Container erzeugt",
    ),
    Key.DEFERRED_TIMEOUTS: Text(
        "/metrics of decode by --url (start it with --enable-metrics)",
        "/metrics von Decode über --url (mit --enable-metrics gestartet)",
    ),
    Key.MOONCAKE_VERSION: Text(
        "--packages FILE (pip freeze in the container)", "--packages FILE (pip freeze im Container)"
    ),
    Key.CONNECTOR: Text("vLLM's launch command or start-up log", "Kommando oder Start-Protokoll von vLLM"),
    Key.LMCACHE_DISK: Text("--env [role=]FILE", "--env [role=]FILE"),
}
_ENVIRONMENT_HOW: Final = HOW_TO_GET[Key.DEFERRED]
_DEFAULT_HOW: Final = Text("the launch command or the start-up log", "Kommando oder Start-Protokoll")
_ENVIRONMENT_KEYS: Final = frozenset(
    {
        Key.DEFERRED_TIMEOUT,
        Key.FAILURE_PROB,
        Key.CHECKSUM_FAULT_PROB,
        Key.DUMPER_PORT,
        Key.DEV_MODE,
        Key.INSECURE_SERIALIZATION,
    }
)


def how_to_get(key: Key) -> Text:
    if key in _ENVIRONMENT_KEYS:
        return _ENVIRONMENT_HOW
    return HOW_TO_GET.get(key, _DEFAULT_HOW)


_NOTES: Final = {
    "cannot-open": Text("cannot be opened", "lässt sich nicht öffnen"),
    "is-a-directory": Text("is a directory", "ist ein Verzeichnis"),
    "damaged": Text("is damaged; read up to there", "ist beschädigt; bis dort gelesen"),
    "too-large": Text("is too large for this option", "ist zu groß für diese Option"),
    "binary": Text("is binary, not text", "ist binär, kein Text"),
    "no-known-line": Text(
        "holds no start-up line of SGLang or vLLM (is it the log from the beginning, at level info?)",
        "enthält keine Startzeile von SGLang oder vLLM (Protokoll von Anfang an, Stufe info?)",
    ),
    "no-known-command": Text("starts no server that is known here", "startet keinen hier bekannten Server"),
    "broken-manifest": Text(
        "looks like a manifest or a template and is not valid YAML; render it first (helm template)",
        "sieht nach Manifest oder Vorlage aus und ist kein gültiges YAML; erst erzeugen (helm template)",
    ),
    "no-known-package": Text("names no package that is known here", "nennt kein hier bekanntes Paket"),
    "no-variables": Text("sets no variables", "setzt keine Variablen"),
    "restarts": Text("restarts seen; the last start counts", "Neustarts gesehen; der letzte zählt"),
    "unreadable-version": Text("version not readable", "Version nicht lesbar"),
    "image-without-version": Text(
        "the image tag names no version; give --engine-version",
        "der Image-Tag nennt keine Version; --engine-version angeben",
    ),
    "unreadable-variable": Text(
        "set, but its value cannot be seen here", "gesetzt, aber der Wert ist hier nicht sichtbar"
    ),
    "unreadable-value": Text("value not readable", "Wert nicht lesbar"),
    "unexpanded-value": Text("variable not known here", "Variable hier nicht bekannt"),
    "config-file-not-read": Text(
        "a --config file is used that was not given; defaults are not assumed",
        "eine nicht angegebene --config-Datei wird benutzt; Voreinstellungen werden nicht angenommen",
    ),
    "unknown-flag": Text(
        "unknown flag; a typing error leaves a guard off",
        "unbekannter Schalter; ein Tippfehler lässt einen Schutz aus",
    ),
    "bad-url": Text("not an http(s) URL", "keine http(s)-URL"),
    "unreachable": Text("not reachable", "nicht erreichbar"),
    "times-out": Text("does not answer in time", "antwortet nicht rechtzeitig"),
    "redirects": Text("redirects; not followed", "leitet um; nicht gefolgt"),
    "needs-token": Text("needs a key: --token-env NAME", "verlangt einen Schlüssel: --token-env NAME"),
    "http-error": Text("answered with an error", "antwortete mit einem Fehler"),
    "answer-too-large": Text("answer too large", "Antwort zu groß"),
    "not-json": Text(
        "answered something that is not a JSON object", "antwortete mit etwas, das kein JSON-Objekt ist"
    ),
    "no-metrics": Text("answered no Prometheus metrics", "antwortete ohne Prometheus-Metriken"),
    "nothing-known-there": Text("answers nothing that is known here", "antwortet nichts hier Bekanntes"),
}


def note_text(note: Note) -> Text:
    said = _NOTES.get(note.code, Text(note.code, note.code))
    detail = f" ({note.detail})" if note.detail else ""
    return Text(f"{note.subject}: {said.en}{detail}", f"{note.subject}: {said.de}{detail}")
