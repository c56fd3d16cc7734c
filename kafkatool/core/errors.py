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


class AlreadyMovingError(RefusedError):
    """Something moves, and nobody said that this is to begin beside it."""


class StartGivenUpError(KafkatoolError):
    """A server was told to stop while it started; what it had begun is undone."""


# --- ZooKeeper -------------------------------------------------------------------------------------------------


class ZooKeeperError(KafkatoolError):
    """Anything ZooKeeper answered or failed to answer."""


class ZooKeeperUnavailableError(ZooKeeperError):
    """No connection within the connection timeout."""


class TermOverError(KafkatoolError):
    """The base, never raised itself, of the errors that end a controller's term, not just the event they come in."""


class ZooKeeperRefusedError(ZooKeeperUnavailableError):
    """No session came about for a reason that trying again does not mend: a login, a certificate, or none of them."""


class NotZooKeeperError(ZooKeeperUnavailableError):
    """The servers that were named for ZooKeeper are something else."""


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
    """The node's ACL forbids it (SEC-24). ``path`` is what was asked for; its owners are named where they may be read."""

    def __init__(self, path: str, owners: str = "its ACL does not allow this", *, now: str | None = None) -> None:
        super().__init__(f"no permission for znode {path}: {owners}", now=now)
        self.path = path


class ZnodeTooLargeError(ZooKeeperError):
    """The packet would exceed ZooKeeper's limit (COM-10X, Z-23)."""


class ZnodeFormatError(KafkatoolError):
    """A node whose content cannot be used: path and what is wrong."""


# --- broker and controller -------------------------------------------------------------------------------------


class ControllerFencedError(TermOverError):
    """A newer controller rules: this one must resign (CTL-15)."""


class ProtocolError(KafkatoolError):
    """Bytes that are not a well-formed request or response (BRK-10)."""


class TooManyElementsError(ProtocolError):
    """A request with more elements than one may have; it was not read to its end (BRK-10)."""


class CorruptRecordsError(KafkatoolError):
    """A record batch whose header, size or checksum does not hold."""


class RecordsTooLargeError(CorruptRecordsError):
    """Records that come to more bytes, decompressed, than are taken."""


class OffsetOrderError(KafkatoolError):
    """Sound record batches whose offsets do not continue the log they were to be appended to (BRK-72)."""


class StorageError(KafkatoolError):
    """A log directory cannot be read or written (BRK-146)."""


class OutOfResourcesError(StorageError):
    """No descriptor or no memory was left: the disk is sound, and it can be tried again.

    Nothing is half done. Nothing was changed, but that what was appended stays: the first of a follower's batches, and a
    batch that could not be flushed as ``flush.messages`` wants it; without a sequence, repeated, it is there twice.
    """


class OffsetOutOfRangeError(KafkatoolError):
    """A read below the log start or above the log end."""


class BrokerUnreachableError(KafkatoolError):
    """A broker did not accept the connection or did not answer in time."""


class LoginRefusedError(BrokerUnreachableError):
    """A broker, ``peer``, took the connection, but not the credentials: trying again does not help."""

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(f"{peer} {why}")
        self.peer = peer


class TlsError(BrokerUnreachableError):
    """No TLS came about: a certificate, a protocol, or no TLS on that port (SEC-15)."""


class BrokerTooOldError(BrokerUnreachableError):
    """A broker answers, and serves no version of a request that is needed."""


class AllRefusedError(BrokerUnreachableError):
    """Every address that was named refused the connection: nobody listens there, so far as the network tells."""


class NoControllerError(KafkatoolError):
    """No controller is elected, so nobody can carry out what was asked for."""


class DeadlineError(KafkatoolError):
    """The time for a whole operation was up before it had ended."""


class UnsupportedApiError(KafkatoolError):
    """A broker has no request that is needed, or none in a version that is (ADM-10)."""

    now = "with --zookeeper kt works on older brokers too"

    def __init__(self, api: str, version: int, broker: str, needs: str = "kt") -> None:
        super().__init__(f"{needs} needs {api} {version}; {broker} has none")
        self.api, self.version, self.broker = api, version, broker

    def of(self, broker: str, needs: str) -> "UnsupportedApiError":
        """Return the same with the names that people know: the broker's, and the command's."""
        return UnsupportedApiError(self.api, self.version, broker, needs)


class BrokerAnswerError(RefusedError):
    """A broker refused a request: its message as it is, or the code's name where it gives none (ADM-23)."""

    def __init__(self, code: int, name: str, message: str | None) -> None:
        super().__init__(message or name)
        self.code = code
        self.name = name


class NotPermittedError(BrokerAnswerError):
    """A broker's authorizer refused it: the right that is missing, on what, and who asked whom (SEC-40).

    ``resource`` is ``topic orders`` or ``cluster``, ``broker`` ``broker 2``, ``principal`` who this side takes itself for.
    """

    def __init__(self, code: int, name: str, operation: str, resource: str, broker: str, principal: str) -> None:
        super().__init__(code, name, f"not permitted: {operation} on {resource} ({broker} as {principal})")
        self.operation = operation
        self.resource = resource
        self.broker = broker
        self.principal = principal
