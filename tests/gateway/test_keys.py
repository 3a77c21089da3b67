"""Keys and tenants: the tenant comes from the credential, and from nothing else (G9, F25)."""

import pytest
from typer.testing import CliRunner

from kvseal.core.errors import StartRefused
from kvseal.core.ids import TenantId
from kvseal.gateway.cli import keys
from kvseal.gateway.keys import KeyRing, hash_key, new_key
from kvseal.gateway.settings import GatewaySettings

ANNA, BEN = TenantId("anna"), TenantId("ben")


def test_each_key_opens_its_own_tenant() -> None:
    first, second, third = new_key(), new_key(), new_key()
    ring = KeyRing([(ANNA, hash_key(first)), (BEN, hash_key(second)), (ANNA, hash_key(third))])
    assert ring.tenant(f"Bearer {first}") == ANNA
    assert ring.tenant(f"bearer  {second} ") == BEN
    assert ring.tenant(f"Bearer {third}") == ANNA


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic {key}", "{key}", "Bearer {key}x", "Bearer é" * 1000]
)
def test_anything_else_opens_nothing(header: str | None) -> None:
    key = new_key()
    ring = KeyRing([(ANNA, hash_key(key))])
    assert ring.tenant(None if header is None else header.format(key=key)) is None


def test_without_keys_there_is_one_tenant() -> None:
    assert KeyRing([]).tenant(None) == "default"
    assert KeyRing([]).tenant("Bearer whatever") == "default"


def test_a_key_of_two_tenants_is_refused_at_start() -> None:
    same = hash_key(new_key())
    with pytest.raises(StartRefused, match="anna and ben have the same key"):
        KeyRing([(ANNA, same), (BEN, same)])


@pytest.mark.parametrize("name", ["", " anna", "kvseal/canary"])
def test_names_that_no_tenant_may_have(name: str) -> None:
    with pytest.raises(StartRefused, match="tenant name"):
        KeyRing([(TenantId(name), hash_key(new_key()))])


def test_a_key_in_the_place_of_its_hash_is_refused_and_not_shown() -> None:
    key = new_key()
    with pytest.raises(StartRefused, match="key_hash of tenant anna") as caught:
        KeyRing([(ANNA, key)])
    assert key not in str(caught.value)


@pytest.mark.parametrize("key", ["short", "a" * 31, "a" * 600, "with space " * 4, "ключ" * 10, ""])
def test_weak_keys_have_no_hash(key: str) -> None:
    with pytest.raises(ValueError, match="a key has"):
        hash_key(key)


def test_keys_are_long_and_differ() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(key.startswith("kvs-") and len(key) >= 46 for key in made)


def test_the_command_hashes_what_it_reads() -> None:
    key = new_key()
    result = CliRunner().invoke(keys, ["hash"], input=f"{key}\n")
    assert result.exit_code == 0
    assert result.stdout.strip() == hash_key(key)


def test_the_command_makes_a_key_and_keeps_it_off_stdout() -> None:
    result = CliRunner().invoke(keys, ["hash", "--new"])
    assert result.exit_code == 0
    key = result.stderr.strip().rpartition(" ")[2]
    assert result.stdout.strip() == hash_key(key)


def test_the_command_refuses_a_weak_key() -> None:
    result = CliRunner().invoke(keys, ["hash"], input="letmein\n")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "--new" in result.stderr


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_settings_that_cannot_work_are_refused(value: float) -> None:
    with pytest.raises(StartRefused, match="request_timeout_s must be above 0"):
        GatewaySettings(request_timeout_s=value)
