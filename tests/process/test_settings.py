"""What a supervisor writes, a process reads; nobody else can, and no secret is in it."""

from pathlib import Path

import pytest

from kvseal.process import GatewayProcess, SettingsUnreadable, WorkerProcess, read_settings, write_settings

WORKER = WorkerProcess(
    role="decode",
    model=Path("/models/toy"),
    model_id="toy",
    dtype="float32",
    page_size=16,
    pool_pages=10,
    reserve_pages=1,
    threads=1,
    run_dir=Path("/run/kvseal"),
    gateways=("unix:/run/kvseal/gateway.sock",),
)


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    write_settings(tmp_path / "w.json", WORKER)
    assert read_settings(tmp_path / "w.json", WorkerProcess) == WORKER


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    write_settings(tmp_path / "w.json", WORKER)
    assert (tmp_path / "w.json").stat().st_mode & 0o777 == 0o600


def test_settings_of_another_process_are_refused(tmp_path: Path) -> None:
    write_settings(tmp_path / "w.json", WORKER)
    with pytest.raises(SettingsUnreadable, match=r"w\.json"):
        read_settings(tmp_path / "w.json", GatewayProcess)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsUnreadable, match=r"none\.json"):
        read_settings(tmp_path / "none.json", WorkerProcess)


def test_no_setting_can_hold_the_cluster_secret() -> None:
    fields = {*WorkerProcess.__struct_fields__, *GatewayProcess.__struct_fields__}
    assert not [name for name in fields if "secret" in name]
