"""The reason why ZooKeeper does not answer, as far as a plain socket can tell: an operator's next steps by hand."""

import socket
from collections.abc import Sequence
from typing import Final

from kafkatool.core.zookeeper.connect_string import split_connect

DEFAULT_PORT: Final = 2181
PROBE_S: Final = 2.0  # to connect, and for an answer
REFUSED_WITHIN_S: Final = 0.5  # longer than any network takes to refuse
_CORRELATION_ID: Final = 0x6B74_0012  # any that ZooKeeper would not answer
NO_SUCH_HOST: Final = {socket.EAI_NONAME, *([socket.EAI_NODATA] if hasattr(socket, "EAI_NODATA") else [])}


def unknown_hosts(connect: str) -> list[str]:
    """Return the names of the connect string that mean no address, if that is so of all of them; else none."""
    names = [host for host, _ in _addresses(connect)]
    unknown = [name for name in names if not _known(name)]
    return unknown if len(unknown) == len(names) else []


def refusing_servers(connect: str) -> list[str]:
    """Return the servers of the connect string, ``host:port``, if all of them refuse connections; else none.

    A server that is slow to answer, or any that accepts, ends the search: the session then takes its time.
    """
    addresses = _addresses(connect)
    for address in addresses:
        try:
            socket.create_connection(address, timeout=REFUSED_WITHIN_S).close()
        except ConnectionRefusedError:
            continue
        except OSError:
            return []
        return []
    return [f"{host}:{port}" for host, port in addresses]


def brokers_instead(connect: str) -> list[str]:
    """Return the servers of the connect string, ``host:port``, if all of them answer as Kafka's brokers do; else none.

    They are asked for what a broker tells anybody. To ZooKeeper that is a torn request, which it answers by closing, so
    this is for who got no session for some time.
    """
    addresses = _addresses(connect)
    return [f"{host}:{port}" for host, port in addresses] if all(map(_is_broker, addresses)) else []


def tls_instead(connect: str) -> list[str]:
    """Return the servers of the connect string, ``host:port``, if all of them speak TLS; else none."""
    from kafkatool.core.security.handshake import speaks_tls  # here: hardly any session needs it

    addresses = _addresses(connect)
    return [f"{host}:{port}" for host, port in addresses] if all(speaks_tls(*a, PROBE_S) for a in addresses) else []


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


def _is_broker(address: tuple[str, int]) -> bool:
    from kafkatool.core.protocol.frames import encode_request  # here: hardly any session needs it
    from kafkatool.core.protocol.messages import api_versions

    request = encode_request(api_versions.API, 0, _CORRELATION_ID, None, api_versions.ApiVersionsRequest())
    try:
        with socket.create_connection(address, timeout=PROBE_S) as probe, probe.makefile("rb") as answer:
            probe.sendall(request)
            start = answer.read(8)  # length, correlation id
    except OSError:
        return False
    return start[4:] == _CORRELATION_ID.to_bytes(4, "big")


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
