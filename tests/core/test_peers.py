"""Two processes that do not mean the same by a page are told apart by name, before any traffic (F18)."""

import msgspec
import pytest

from kvseal.core.ids import InstanceId, LayoutDigest
from kvseal.core.messages import Hello
from kvseal.core.peers import mismatch

OURS = Hello(
    role="decode",
    instance=InstanceId(b"d" * 16),
    model="smollm2",
    layout=LayoutDigest(b"\x01" * 16),
    page_size=16,
    dtype="bfloat16",
    pool_tokens=4096,
    address="unix:/run/d.sock",
)
THEIRS = msgspec.structs.replace(
    OURS, role="prefill", instance=InstanceId(b"\xab" * 16), pool_tokens=1024, address="unix:/run/p.sock"
)
GATEWAY = Hello(role="gateway", instance=InstanceId(b"g" * 16), model="smollm2")


def test_workers_with_the_same_pages_match_whatever_their_size_and_place() -> None:
    assert mismatch(OURS, THEIRS) is None
    assert mismatch(THEIRS, OURS) is None


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("version", 2, "protocol version: 1 here, 2 at prefill abababab"),
        ("model", "llama", "model: 'smollm2' here, 'llama' at prefill abababab"),
        ("page_size", 32, "page size: 16 here, 32 at prefill abababab"),
        ("dtype", "float32", "dtype: 'bfloat16' here, 'float32' at prefill abababab"),
        ("layout", b"\x02" * 16, f"layout digest: {'01' * 16} here, {'02' * 16} at prefill abababab"),
        ("layout", b"", f"layout digest: {'01' * 16} here, none at prefill abababab"),
    ],
)
def test_a_difference_is_named_with_both_values(field: str, value: object, said: str) -> None:
    """F18: refused by name."""
    assert mismatch(OURS, msgspec.structs.replace(THEIRS, **{field: value})) == said


def test_the_digest_is_named_only_where_nothing_readable_differs() -> None:
    """The digest covers page size and dtype: naming it first would name nothing else, ever."""
    theirs = msgspec.structs.replace(THEIRS, layout=LayoutDigest(b"\x02" * 16), page_size=32)
    assert mismatch(OURS, theirs) == "page size: 16 here, 32 at prefill abababab"


def test_a_gateway_has_no_pages_but_a_model_and_a_version() -> None:
    assert mismatch(GATEWAY, OURS) is None
    assert mismatch(OURS, GATEWAY) is None
    assert mismatch(GATEWAY, msgspec.structs.replace(OURS, model="llama")) is not None
    assert mismatch(GATEWAY, msgspec.structs.replace(OURS, version=2)) is not None
