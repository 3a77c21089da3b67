"""Defaults, file, flags: in this order, and each mistake by name."""

from pathlib import Path

import pytest

from kvseal.core.errors import StartRefused
from kvseal.supervisor.config import ServeConfig, load_config

HASH = "sha256:" + "ab" * 32


def written(folder: Path, text: str) -> Path:
    path = folder / "kvseal.toml"
    path.write_text(text)
    return path


def test_without_anything_the_defaults_stand() -> None:
    config = load_config(None, {})
    assert config == ServeConfig()
    assert config.host == "127.0.0.1"


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = written(tmp_path, "port = 9000\nprefill = 2\n")
    config = load_config(path, {"port": 9001, "prefill": None})
    assert (config.port, config.prefill, config.decode) == (9001, 2, 1)


def test_tenants_come_from_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, f'[[tenants]]\nname = "acme"\nkey_hash = "{HASH}"\n')
    assert load_config(path, {}).tenants[0].name == "acme"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prot = 1", "prot"),
        ("port = 70000", "port"),
        ("port = 'x'", "port"),
        ("dtype = 'float16'", "dtype"),
        ("max_context = 'all'", "max_context"),
        ("retries = -1", "retries"),
        ("port = ", "Invalid value"),
        (f"[[tenants]]\nname = 'a/b'\nkey_hash = '{HASH}'", "a/b"),
        (
            f"[[tenants]]\nname = 'a'\nkey_hash = '{HASH}'\n[[tenants]]\nname = 'b'\nkey_hash = '{HASH}'",
            "same key",
        ),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(StartRefused, match=named):
        load_config(written(tmp_path, text), {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="No such file"):
        load_config(tmp_path / "none.toml", {})


def test_without_keys_only_loopback_is_listened_on() -> None:
    with pytest.raises(StartRefused, match="loopback only"):
        load_config(None, {"host": "0.0.0.0"})  # noqa: S104 (refused)


def test_with_keys_any_address_may_be_listened_on(tmp_path: Path) -> None:
    path = written(tmp_path, f'host = "0.0.0.0"\n[[tenants]]\nname = "acme"\nkey_hash = "{HASH}"\n')
    assert load_config(path, {}).host == "0.0.0.0"  # noqa: S104 (only looked at)
