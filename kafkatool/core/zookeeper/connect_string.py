"""The address of a ZooKeeper ensemble, as Kafka writes it (Z-1)."""

import re

from kafkatool.core.errors import UsageError

_FORM = "host:port[,host:port…][/chroot]"
_HOST_BEHIND_A_CHROOT = re.compile(r",[^/,]+:\d+(?=[/,]|$)")  # a comma alone may be part of a znode's name


def without_spaces(connect: str) -> str:
    """Return it as it is, unless it contains a space: UsageError (Z-1)."""
    if any(c.isspace() for c in connect):
        raise UsageError(f"--zookeeper {connect!r} contains a space; the form is {_FORM}")
    return connect


def split_connect(connect: str) -> tuple[str, str]:
    """Split ``host:port,…[/chroot]`` into hosts and chroot or "" (Z-1).

    Raises UsageError on spaces, on empty hosts, and on a host behind a chroot: ZooKeeper's own client would take it for
    a part of the chroot, and a broker would make a cluster of its own there.
    """
    hosts, slash, chroot = without_spaces(connect).partition("/")
    if not all(h and (h.rpartition(":")[2].isdecimal() or ":" not in h) for h in hosts.split(",")):
        raise UsageError(f"--zookeeper {connect!r} is not of the form {_FORM}")
    if _HOST_BEHIND_A_CHROOT.search(chroot):
        raise UsageError(f"--zookeeper {connect!r}: the chroot stands once, behind the last host; the form is {_FORM}")
    return hosts, (slash + chroot).rstrip("/")
