"""Rules and advisory data about other people's deployments: `kvseal audit`.

    fleet.Fleet ──> rules (three-valued) ──> Report ──> terminal, JSON, SARIF, Markdown

A rule answers yes, no or unknown for each server, with the facts that made it say so. The verdict is built
so that taking knowledge away never moves it towards "not affected" (`verdict.py`).
"""
