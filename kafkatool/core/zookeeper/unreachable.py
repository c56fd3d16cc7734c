"""The reason why ZooKeeper does not answer, as far as a plain socket can tell: an operator's next steps by hand."""

import socket
from collections.abc import Sequence
from typing import Final

from kafkatool.core.zookeeper.connect_string import split_connect

DEFAULT_PORT: Final = 2181
PROBE_S: Final = 2.0  # to connect, and for an answer
NO_SUCH_HOST: Final = {socket.EAI_NONAME, *([socket.EAI_NODATA] if hasattr(socket, "EAI_NODATA") else [])}


def unknown_hosts(connect: str) -> list[str]:
    """Return the names of the connect string that mean no address, if that is so of all of them; else none."""
    names = [host for host, _ in _addresses(connect)]
    unknown = [name for name in names if not _known(name)]
    return unknown if len(unknown) == len(names) else []


def why_unreachable(connect: str) -> str:
    """Tell in a few words what the first server of the connect string does."""
    host, port = _addresses(connect)[0]
    try:
        with socket.create_connection((host, port), timeout=PROBE_S) as probe:
            probe.sendall(b"ruok")  # ZooKeeper answers, or closes where the word is not allowed
            probe.recv(4)
    except ConnectionRefusedError:
        return f"nothing listens at {host}:{port}"
    except TimeoutError:
        return f"{host}:{port} does not answer: a firewall, or not ZooKeeper (a broker's port?)"
    except OSError as e:
        return f"{host}:{port}: {e.strerror or e}"
    return f"{host}:{port} answers, but serves no session: is it a broker's port, or has the ensemble no quorum?"


def _addresses(connect: str) -> Sequence[tuple[str, int]]:
    hosts, _ = split_connect(connect)
    parts = (host.strip().rpartition(":") for host in hosts.split(","))
    return [(name.strip("[]"), int(port)) if colon else (port, DEFAULT_PORT) for name, colon, port in parts]


def _known(name: str) -> bool:
    """Return False only where the name service answered that there is none; one without answer is asked again by kazoo."""
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror as e:
        return e.errno not in NO_SUCH_HOST
    except UnicodeError:
        return False  # no name at all
    except OSError:
        return True
    return True
