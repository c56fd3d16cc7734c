"""What it may mean that a peer closes upon the first request of all, ApiVersions, which every broker answers anybody."""

from collections.abc import Iterator
from contextlib import contextmanager

from kafkatool.core.errors import BrokerUnreachableError, ProtocolError, TlsError


@contextmanager
def first_request(peer: object, *, encrypted: bool) -> Iterator[None]:
    """Say of whatever ends the first request what it may mean, unless that is plain: no answer in time, or an alert of TLS.

    Raises BrokerUnreachableError, ProtocolError.
    """
    try:
        yield
    except (ProtocolError, BrokerUnreachableError) as e:
        if isinstance(e, TlsError) or is_late(e):
            raise
        hint = "does not take our certificate, or" if encrypted else "speaks TLS or"
        raise BrokerUnreachableError(f"{peer}: closed during ApiVersions: {hint} is no Kafka broker") from e


def is_late(error: BaseException) -> bool:
    """Tell whether it is that no answer came in time."""
    return isinstance(error.__cause__, BlockingIOError | TimeoutError)
