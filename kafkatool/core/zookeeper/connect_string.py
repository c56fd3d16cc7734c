"""The address of a ZooKeeper ensemble, as Kafka writes it (Z-1)."""

from kafkatool.core.errors import UsageError


def split_connect(connect: str) -> tuple[str, str]:
    """``host:port,…[/chroot]`` -> (hosts, chroot or ""). Raises UsageError on spaces and empty hosts (Z-1)."""
    if any(c.isspace() for c in connect):
        raise UsageError(f"--zookeeper {connect!r} contains a space; the form is host:port[,host:port…][/chroot]")
    hosts, slash, chroot = connect.partition("/")
    if not hosts or not all(h.rpartition(":")[2].isdecimal() or ":" not in h for h in hosts.split(",")):
        raise UsageError(f"--zookeeper {connect!r} is not of the form host:port[,host:port…][/chroot]")
    return hosts, (slash + chroot).rstrip("/")
