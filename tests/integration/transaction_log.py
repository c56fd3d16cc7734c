"""ZooKeeper's own transaction log, read as it lies on disk: who changed what, in the order in which it took effect.

Layout of ZooKeeper 3.4 to 3.9: a header of 16 bytes, then entries of checksum, length, bytes and an end mark; an entry is
session, cxid, zxid, time, type and what belongs to the type. Source: server/persistence/FileTxnLog.java, zookeeper.jute.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

_HEADER = Struct(">4siq")
_ENTRY = Struct(">qi")  # checksum, length
_TRANSACTION = Struct(">qiqqi")  # session, cxid, zxid, time, type
_INT = Struct(">i")
_END = b"B"
_CREATES, _DELETES = (1, 15, 19, 21), (2, 20)  # of containers and of nodes with a time to live too
_KINDS: Final = {
    **dict.fromkeys(_CREATES, "create"),
    **dict.fromkeys(_DELETES, "delete"),
    5: "set",
    7: "acl",
}
_MULTI, _CHECK, _ERROR = 14, 13, -1
_CREATE_SESSION, _CLOSE_SESSION = -10, -11


class Transaction(NamedTuple):
    """What one session did: (create | delete | set | acl | open | close, path) each; nothing if it was ``refused``."""

    zxid: int
    session: int
    changes: tuple[tuple[str, str], ...]
    refused: bool


def read_transactions(data: Path) -> list[Transaction]:
    """Return all that the logs of this dataDir hold, up to where they are written now."""
    files = sorted((data / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16))
    return [_transaction(entry) for file in files for entry in _entries(file.read_bytes())]


def _entries(content: bytes) -> Iterator[bytes]:
    assert content[:4] == b"ZKLG"
    position = _HEADER.size
    while position + _ENTRY.size <= len(content):
        _, length = _ENTRY.unpack_from(content, position)
        start = position + _ENTRY.size
        position = start + length + 1
        if length == 0 or content[position - 1 : position] != _END:  # the file is made longer than it is filled
            return
        yield content[start : position - 1]


def _transaction(entry: bytes) -> Transaction:
    session, _, zxid, _, kind = _TRANSACTION.unpack_from(entry)
    body = entry[_TRANSACTION.size :]
    parts = list(_parts(body)) if kind == _MULTI else [(kind, body)]
    refused = any(k == _ERROR for k, _ in parts)
    changes = tuple(change for k, b in parts if not refused and (change := _change(k, b)))
    return Transaction(zxid, session, changes, refused)


def _parts(body: bytes) -> Iterator[tuple[int, bytes]]:
    (count,) = _INT.unpack_from(body)
    position = _INT.size
    for _ in range(count):
        (kind,) = _INT.unpack_from(body, position)
        (length,) = _INT.unpack_from(body, position + 4)
        yield kind, body[position + 8 : position + 8 + length]
        position += 8 + length


def _change(kind: int, body: bytes) -> tuple[str, str] | None:
    if kind == _CHECK:
        return None
    if kind in (_CREATE_SESSION, _CLOSE_SESSION):
        return ("open" if kind == _CREATE_SESSION else "close", "")
    (length,) = _INT.unpack_from(body)
    return _KINDS[kind], body[4 : 4 + length].decode()


def written_by_deposed(transactions: Iterable[Transaction]) -> list[Transaction]:
    """Return what took effect of sessions that had lost ``/controller`` to another, but for their end."""
    deposed: set[int] = set()
    ruler: int | None = None
    found = []
    for transaction in transactions:
        if ("create", "/controller") in transaction.changes:
            if ruler is not None:
                deposed.add(ruler)
            ruler = transaction.session
            deposed.discard(ruler)
        elif transaction.session in deposed and transaction.changes not in ((), (("close", ""),)):
            found.append(transaction)
    return found
