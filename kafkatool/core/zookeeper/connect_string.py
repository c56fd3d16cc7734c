"""The address of a ZooKeeper ensemble, as Kafka writes it (Z-1)."""

from kafkatool.core.errors import UsageError

_FORM = "host:port[,host:port…][/chroot]"


def without_spaces(connect: str) -> str:
    """Return it as it is, unless it contains a space: UsageError (Z-1)."""
    if any(c.isspace() for c in connect):
        raise UsageError(f"--zookeeper {connect!r} contains a space; the form is {_FORM}")
    return connect


def split_connect(connect: str) -> tuple[str, str]:
    """Split ``host:port,…[/chroot]`` into hosts and chroot or "". Raises UsageError on spaces and empty hosts (Z-1)."""
    hosts, slash, chroot = without_spaces(connect).partition("/")
    if not all(h and (h.rpartition(":")[2].isdecimal() or ":" not in h) for h in hosts.split(",")):
        raise UsageError(f"--zookeeper {connect!r} is not of the form {_FORM}")
    return hosts, (slash + chroot).rstrip("/")
