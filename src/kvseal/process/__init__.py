"""What the processes of one server share: the settings that a supervisor writes, and how a process starts and
ends.
"""

from kvseal.process.settings import (
    GatewayProcess,
    SettingsUnreadable,
    Tenant,
    WorkerProcess,
    read_settings,
    write_settings,
)

__all__ = [
    "GatewayProcess",
    "SettingsUnreadable",
    "Tenant",
    "WorkerProcess",
    "read_settings",
    "write_settings",
]
