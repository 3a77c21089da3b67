"""Facts about deployments that other people run: from logs, commands, packages and live endpoints.

Readers here never judge and never raise on bad input: what they cannot read becomes a `Note`. Every `Fact`
says where it stands. The auditor and the prober build on this package; it imports nothing else of ours.
"""
