"""Every error kafkatool raises on purpose. Library errors are turned into these at the one edge where they arise."""


class KafkatoolError(Exception):
    """Root of the tree. Its text is one line: what, where, what now. The command line shows it and exits 1.

    ``now`` is what to do about it where the text does not say so, being Kafka's: scripts look for those words alone.
    """

    now: str | None = None

    def __init__(self, *args: object, now: str | None = None) -> None:
        super().__init__(*args)
        if now is not None:
            self.now = now


class UsageError(KafkatoolError):
    """Wrong flags, or an input file that cannot be read or is not JSON: exit 2, nothing was written (COM-3X)."""


class ConfigError(KafkatoolError):
    """A broker property or topic config that cannot be used: names it, its value and the reason."""


class RefusedError(KafkatoolError):
    """An operation that was checked and refused before anything was written: exit 1."""


# --- ZooKeeper -------------------------------------------------------------------------------------------------


class ZooKeeperError(KafkatoolError):
    """Anything ZooKeeper answered or failed to answer."""


class ZooKeeperUnavailableError(ZooKeeperError):
    """No connection within the connection timeout."""


class TermOverError(KafkatoolError):
    """The base, never raised itself, of the errors that end a controller's term, not just the event they come in."""


class ConnectionLostError(ZooKeeperError, TermOverError):
    """The connection went while a request was under way; whether it was carried out is unknown."""


class SessionExpiredError(ZooKeeperError, TermOverError):
    """The session is gone, and with it every ephemeral node and watch of it."""


class ChrootMissingError(ZooKeeperError):
    """The chroot of the connect string does not exist (COM-1, Z-2)."""


class NodeExistsError(ZooKeeperError):
    """Exclusive create found the node there."""


class NoNodeError(ZooKeeperError):
    """The node to change is not there."""


class NotEmptyError(ZooKeeperError):
    """The node to delete still has children."""


class VersionConflictError(ZooKeeperError):
    """Somebody else wrote first: the node's version is not the one the write was bound to."""


class NoPermissionError(ZooKeeperError):
    """The node's ACL forbids it (Z-6)."""

    now = "kt connects without credentials: open the node to everybody (setAcl in zkCli.sh), or ask who closed it"


class ZnodeTooLargeError(ZooKeeperError):
    """The packet would exceed ZooKeeper's limit (COM-10X, Z-23)."""


class ZnodeFormatError(KafkatoolError):
    """A node whose content cannot be used: path and what is wrong."""


# --- broker and controller -------------------------------------------------------------------------------------


class ControllerFencedError(TermOverError):
    """A newer controller rules: this one must resign (CTL-15)."""


class ProtocolError(KafkatoolError):
    """Bytes that are not a well-formed request or response (BRK-10)."""


class CorruptRecordsError(KafkatoolError):
    """A record batch whose header, size or checksum does not hold."""


class OffsetOrderError(KafkatoolError):
    """Sound record batches whose offsets do not continue the log they were to be appended to (BRK-72)."""


class StorageError(KafkatoolError):
    """A log directory cannot be read or written (BRK-146)."""


class OffsetOutOfRangeError(KafkatoolError):
    """A read below the log start or above the log end."""


class BrokerUnreachableError(KafkatoolError):
    """A broker did not accept the connection or did not answer in time."""
