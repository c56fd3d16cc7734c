"""Ports for an embedded cluster, on loopback.

They are taken from below the range from which the system gives ports to outgoing connections. In that range a broker
that is down can lose its port: a client that keeps connecting to it gets the very port as its own sooner or later,
and is then connected with itself.
"""

import contextlib
import errno
import random
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kafkatool.core.errors import RefusedError

HOST = "127.0.0.1"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_HIGHEST = 65_535
_CHANCE = random.SystemRandom()  # a test suite seeds `random`: with one seed all its workers would pick the same ports
ATTEMPTS = 1000  # random picks before a port of the outgoing range is taken


def is_free(port: int) -> bool:
    """Tell whether nobody has it."""
    with socket.socket() as s:
        return _bound(s, port)


def require_free(port: int, what: str, *, patience_ms: int = 0) -> None:
    """Wait that long for the port to be free. Raises RefusedError, which says for ``what`` it is."""
    if not 0 < port <= _HIGHEST:
        raise RefusedError(f"port {port} for {what} is none: the highest is {_HIGHEST}")
    deadline = time.monotonic() + patience_ms / 1000
    while not is_free(port):
        if _is_forbidden(port):
            raise RefusedError(f"port {port} for {what} is one that this user may not listen on: name a higher one")
        if time.monotonic() >= deadline:
            raise RefusedError(
                f"port {port} for {what} is taken on {HOST}: end what listens there or name another port"
            )
        time.sleep(0.02)


def _is_forbidden(port: int) -> bool:
    with socket.socket() as s:
        try:
            s.bind((HOST, port))
        except OSError as e:
            return e.errno == errno.EACCES
    return False


def hold(port: int) -> socket.socket | None:
    """Keep a port where nobody listens from being picked, until what this returns is closed; who is to listen there may.

    Clients are refused as if nobody held it. None where it cannot be had, or (other than on Linux) be had by two.
    """
    s = socket.socket()
    if sys.platform == "linux" and _bound(s, port):
        return s
    s.close()
    return None


def free_ports(count: int) -> Iterator[int]:
    """Pick ports nobody has or holds, all different: each is held until all are picked."""
    candidates = candidate_ports()
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(count):
            s = held.enter_context(socket.socket())
            if not any(_bound(s, _CHANCE.choice(candidates), beside=False) for _ in range(ATTEMPTS)):
                s.bind((HOST, 0))
            ports.append(s.getsockname()[1])
    return iter(ports)


def _bound(s: socket.socket, port: int, *, beside: bool = True) -> bool:
    """Bind it, ``beside`` what is left of others' connections, or of who holds the port."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, beside)
    try:
        s.bind((HOST, port))
    except OSError:
        return False
    return True


def candidate_ports() -> range:
    """Return the ports below those given to outgoing connections (32768 where the system does not tell)."""
    try:
        lowest_outgoing = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest_outgoing = 32_768
    return range(_LOWEST, max(lowest_outgoing, _LOWEST + 1))
