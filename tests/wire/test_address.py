"""A socket is only ever in a place of our own."""

import os
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvseal.wire.address import MAX_PATH_BYTES, UnixAddress, check_peer, parse_address
from kvseal.wire.errors import AddressRefused, NotAuthenticated, Unreachable


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/run/s",
        "tcp:127.0.0.1:1",
        "unix:",
        "unix:s",
        "unix:./s",
        "unix:/run//s",
        "unix:/run/../s",
        "unix:/s\0",
    ],
)
def test_an_address_is_written_in_one_way(text: str) -> None:
    with pytest.raises(AddressRefused):
        parse_address(text)
    assert str(parse_address("unix:/run/k/s")) == "unix:/run/k/s"


def test_a_path_longer_than_the_kernel_takes_is_refused_with_both_numbers() -> None:
    path = "/" + "x" * (MAX_PATH_BYTES - 1)
    assert parse_address(f"unix:{path}") == UnixAddress(path)
    with pytest.raises(AddressRefused, match="108 bytes, the kernel takes 107"):
        parse_address(f"unix:{path}x")


def test_the_longest_path_works(directory: Path) -> None:
    place = UnixAddress(f"{directory}/".ljust(MAX_PATH_BYTES, "x"))
    with place.listen(), place.dial():
        pass


def test_the_socket_is_private(directory: Path) -> None:
    place = UnixAddress(f"{directory}/s")
    umask = os.umask(0)
    try:
        with place.listen():
            status = os.lstat(place.path)
    finally:
        os.umask(umask)
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o1700])
def test_a_directory_that_others_can_enter_is_refused_by_name(directory: Path, mode: int) -> None:
    place = UnixAddress(f"{directory}/s")
    directory.chmod(mode)
    for use in (place.listen, place.dial):
        with pytest.raises(AddressRefused, match=f"{directory} has mode {mode:04o}, must be 0700"):
            use()


def test_a_directory_of_another_user_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    with pytest.raises(AddressRefused, match=f"belongs to user {ours}, we are {ours + 1}"):
        UnixAddress(f"{directory}/s").listen()


def test_a_link_in_place_of_the_directory_is_refused(directory: Path) -> None:
    (directory / "real").mkdir(0o700)
    (directory / "link").symlink_to(directory / "real")
    with pytest.raises(AddressRefused, match="not a directory"):
        UnixAddress(f"{directory}/link/s").listen()


def test_a_missing_directory_is_an_error_for_who_serves_and_a_matter_of_time_for_who_dials(
    directory: Path,
) -> None:
    place = UnixAddress(f"{directory}/none/s")
    with pytest.raises(AddressRefused, match="there is no directory"):
        place.listen()
    with pytest.raises(Unreachable, match="no such directory"):
        place.dial()


def test_nobody_there_is_unreachable(directory: Path) -> None:
    place = UnixAddress(f"{directory}/s")
    with pytest.raises(Unreachable, match="No such file"):
        place.dial()
    place.listen().close()
    with pytest.raises(Unreachable, match="Connection refused"):
        place.dial()


def test_a_full_backlog_is_unreachable_and_not_a_connection(directory: Path) -> None:
    place = UnixAddress(f"{directory}/s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place.path)
        listening.listen(0)
        with place.dial(), pytest.raises(Unreachable, match="temporarily unavailable"):
            place.dial()


def test_a_socket_file_left_by_a_dead_process_is_replaced(directory: Path) -> None:
    place = UnixAddress(f"{directory}/s")
    place.listen().close()  # the file stays, as after SIGKILL
    with place.listen(), place.dial():
        pass


def test_of_several_that_find_a_stale_file_at_once_exactly_one_serves(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, probe = UnixAddress(f"{directory}/s"), UnixAddress._is_served

    def slow(self: UnixAddress) -> bool:
        served = probe(self)
        time.sleep(0.02)  # between the look and the unlink, where the others would come in
        return served

    def listen() -> socket.socket | None:
        try:
            return place.listen()
        except AddressRefused:
            return None

    monkeypatch.setattr(UnixAddress, "_is_served", slow)
    place.listen().close()
    with ThreadPoolExecutor(4) as pool:
        winners = [listener for listener in pool.map(lambda _: listen(), range(4)) if listener is not None]
    assert len(winners) == 1
    with winners[0], place.dial():
        pass


def test_the_socket_of_a_living_process_is_not_replaced(directory: Path) -> None:
    place = UnixAddress(f"{directory}/s")
    with place.listen():
        with pytest.raises(AddressRefused, match="another process serves there"):
            place.listen()
        with place.dial():
            pass


def test_a_file_that_is_no_socket_is_not_removed(directory: Path) -> None:
    (directory / "s").write_text("precious")
    with pytest.raises(AddressRefused, match="no socket"):
        UnixAddress(f"{directory}/s").listen()
    assert (directory / "s").read_text() == "precious"


def test_release_removes_our_own_file_and_leaves_a_successors(directory: Path) -> None:
    place = UnixAddress(f"{directory}/s")
    place.listen().close()
    place.release()
    assert not (directory / "s").exists()
    place.release()  # once more does no harm
    with place.listen():
        place.release()
        assert (directory / "s").exists()
    (directory / "s").unlink()
    (directory / "s").write_text("precious")
    place.release()
    assert (directory / "s").read_text() == "precious"


def test_a_peer_of_our_own_user_passes_and_another_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = os.geteuid()
    one, other = socket.socketpair()
    with one, other:
        check_peer(one)
        monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
        with pytest.raises(NotAuthenticated):
            check_peer(one)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_the_kernel_names_the_other_user(directory: Path) -> None:
    """A real process of user nobody that got past the directory: it kept root's access to files."""
    place = UnixAddress(f"{directory}/s")
    as_nobody = (
        "import ctypes, os, socket, sys; os.setresuid(65534, 65534, 0); ctypes.CDLL(None).setfsuid(0); "
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
    )
    with place.listen() as listening:
        listening.setblocking(True)
        child = subprocess.Popen([sys.executable, "-c", as_nobody, place.path])
        try:
            connected, _ = listening.accept()
            with connected, pytest.raises(NotAuthenticated):
                check_peer(connected)
        finally:
            assert child.wait(timeout=10) == 0
