"""What an operator can set about the gateway's HTTP side. Every limit has a number here."""

from dataclasses import dataclass, fields

from kvseal.core.errors import StartRefused
from kvseal.core.ids import TenantId


@dataclass(frozen=True, slots=True)
class TenantKey:
    """One API key of a tenant. A tenant may have several, so that keys can be rotated."""

    tenant: TenantId
    key_hash: str
    """As ``kvseal keys hash`` prints it: ``sha256:`` and 64 hex digits."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Limits of the HTTP side. Raises StartRefused for one that is not above 0."""

    tenants: tuple[TenantKey, ...] = ()
    """Empty: no key is asked for and everybody is the tenant ``default``. For loopback only."""

    default_max_tokens: int = 1024
    """Tokens of the answer where a request names no maximum; fewer where the context leaves fewer."""
    request_timeout_s: float = 600.0
    """From the end of the request's headers to the end of the answer; then 504 or an error event."""
    body_timeout_s: float = 30.0
    """For the whole body of a request to arrive; then 408."""
    header_timeout_s: float = 10.0
    """For the headers of a request to arrive, or for a fresh connection to say anything; then 408."""
    keep_alive_timeout_s: float = 75.0
    """How long a connection may idle between two requests."""
    stalled_reader_timeout_s: float = 60.0
    """How long a client may leave unread what was sent to it; then it counts as gone."""
    linger_s: float = 2.0
    """How long an unwanted body is read and thrown away, so that its sender gets to see the refusal."""
    farewell_s: float = 5.0
    """How long the last word to a client may take."""

    header_bytes: int = 16_384
    """For request line and headers together; then 431."""
    fields_bytes: int = 65_536
    """Of a body, beyond what the longest prompt can take: names, white space, stop strings."""
    buffered_bytes: int = 64 << 20
    """Bodies in memory at a time, of all requests together; then 503. There is always room for one."""
    connections: int = 4096
    """Open connections; then 503."""
    requests: int = 1024
    """Requests that are being worked on, of all tenants together; then 503."""
    tokenizer_threads: int = 2
    """Prompts that are tokenized at a time; others wait."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            # Written so that a NaN is refused too.
            if isinstance(value, int | float) and not value > 0:
                raise StartRefused(f"the gateway's {field.name} must be above 0, and is {value}")
