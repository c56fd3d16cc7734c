"""Addresses of brokers as people write them: ``kafka1:9092,[::1]:9092`` (ADM-2)."""

import ipaddress
from typing import NamedTuple

from kafkatool.core.errors import UsageError

MAX_PORT = 65535


class Address(NamedTuple):
    """A host, by its name or its IP, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str, flag: str = "--bootstrap-server") -> tuple[Address, ...]:
    """Parse a list of addresses, in the order given. Raises UsageError: no port, or one that is none."""
    return tuple(_parse(part.strip(), flag) for part in text.split(","))


def is_loopback(address: str) -> bool:
    """Tell whether the peer with that IP is this machine itself."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _parse(part: str, flag: str) -> Address:
    host, colon, port = part.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed):
        raise UsageError(f"{flag}: {part!r} is not of the form host:port or [v6]:port")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= MAX_PORT):
        raise UsageError(f"{flag}: {part!r} has no port from 1 to {MAX_PORT}")
    return Address(host[1:-1] if bracketed else host, int(port))
