"""The secret comes from a descriptor or a private file, and from nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvseal.wire import (
    SecretRefused,
    make_secret,
    read_secret_fd,
    read_secret_file,
    secret_descriptor,
    write_secret_file,
)

READ_IT = "import sys; from kvseal.wire import read_secret_fd; print(read_secret_fd(int(sys.argv[1])).hex())"


def test_two_secrets_differ() -> None:
    assert make_secret() != make_secret()
    assert len(make_secret()) == 32


def test_every_child_reads_the_secret_from_the_descriptor_it_inherits() -> None:
    """One descriptor, several children: they share its position, and still each reads all of it."""
    secret = make_secret()
    descriptor = secret_descriptor(secret)
    try:
        for _ in range(2):
            child = subprocess.run(
                [sys.executable, "-c", READ_IT, str(descriptor)],
                pass_fds=[descriptor],
                capture_output=True,
                text=True,
                check=True,
            )
            assert child.stdout.strip() == secret.hex()
    finally:
        os.close(descriptor)


def test_the_descriptor_cannot_be_written_and_is_closed_on_exec() -> None:
    descriptor = secret_descriptor(make_secret())
    try:
        assert not os.get_inheritable(descriptor)
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def test_a_pipe_will_do_and_is_closed_after_reading() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"s" * 20)
    os.write(writing, b"s" * 20)
    os.close(writing)
    assert read_secret_fd(reading) == b"s" * 40
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)


@pytest.mark.parametrize("descriptor", [-1, 0, 2, 987])
def test_a_descriptor_that_cannot_carry_it_is_refused_by_number(descriptor: int) -> None:
    with pytest.raises(SecretRefused, match=f"--secret-fd {descriptor}: "):
        read_secret_fd(descriptor)


def test_an_endless_descriptor_is_not_read_to_its_end() -> None:
    with pytest.raises(SecretRefused, match="more than 64 bytes"):
        read_secret_fd(os.open("/dev/zero", os.O_RDONLY))


def test_a_file_of_ours_is_read_back(tmp_path: Path) -> None:
    path, secret = tmp_path / "secret", make_secret()
    umask = os.umask(0o777)
    try:
        write_secret_file(path, secret)
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o7777 == 0o600
    assert read_secret_file(path) == secret


def test_a_secret_in_use_is_never_overwritten(tmp_path: Path) -> None:
    path, secret = tmp_path / "secret", make_secret()
    write_secret_file(path, secret)
    with pytest.raises(FileExistsError):
        write_secret_file(path, make_secret())
    assert read_secret_file(path) == secret


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o700, 0o400])
def test_another_mode_is_refused_by_name(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    write_secret_file(path, make_secret())
    path.chmod(mode)
    with pytest.raises(SecretRefused, match=f"mode {mode:04o}, must be 0600"):
        read_secret_file(path)


def test_another_owner_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ours = tmp_path / "secret", os.geteuid()
    write_secret_file(path, make_secret())
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    with pytest.raises(SecretRefused, match=f"owned by user {ours}, we are {ours + 1}"):
        read_secret_file(path)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    for path, reason in ((fifo, "not a regular file"), (tmp_path / "none", "No such file")):
        with pytest.raises(SecretRefused, match=reason):
            read_secret_file(path)
    with pytest.raises(SecretRefused, match="not a regular file"):
        read_secret_file(tmp_path)


@pytest.mark.parametrize("size", [0, 31, 65, 5000])
def test_another_size_is_refused_with_a_recipe(tmp_path: Path, size: int) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_bytes(b"s" * size)
    with pytest.raises(SecretRefused, match=r"32 to 64 raw bytes are wanted .*head -c 32 /dev/urandom"):
        read_secret_file(path)
