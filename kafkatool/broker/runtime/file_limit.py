"""The limit of open files of a broker process: raised to what the system allows, as the JVM does for Kafka.

Every partition written to costs a descriptor, every connection another. With the usual soft limit of 1024 a broker
would take its log dirs for broken after some hundred partitions.
"""

import logging
import resource
import sys

log = logging.getLogger(__name__)

_FEW = 10_000
_RESERVED = 1000


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; return the limit now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as e:
            log.warning("the limit of open files stays %d of %d: %s", soft, hard, e)
    if 0 <= soft < _FEW:
        log.warning("this broker may have %d files open; each partition and each connection takes one", soft)
    return soft


def first_not_for_connections() -> int:
    """Return the first descriptor kept for logs and the like: a quarter of all, or 1000, are not for connections.

    The system gives out the lowest free number. A broker without descriptors cannot open a file, takes that for a
    failed disk, and stops: whoever can connect could stop it.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft < 0 else soft - min(_RESERVED, soft // 4)
