"""The socket by which a test asks its brokers for faults: one JSON line in, one out.

It is a file in the broker's directory, so who may write there may ask. A fault lives as long as the connection that asked
for it: a test that ends, or is killed, leaves none.
"""

import contextlib
import difflib
import errno
import logging
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from kafkatool.broker.faults.address import address_of
from kafkatool.broker.faults.answers import FaultyHandlers
from kafkatool.broker.faults.disk import FaultyDisk
from kafkatool.broker.faults.rules import Rule, names_topics
from kafkatool.broker.handlers.call import Served
from kafkatool.broker.network.socket_server import SocketServer
from kafkatool.core.errors import KafkatoolError, RefusedError

log = logging.getLogger(__name__)

_NO_DESCRIPTOR_S = 0.1  # until a test that has them used up is tried again


class FaultControl:
    """One broker's end. ``handlers.table`` is what its dispatcher is to go by.

    ``network`` has its listeners; ``link`` is what carries its ZooKeeper session.
    """

    def __init__(self, path: Path, handlers: Mapping[int, Served], *, network: SocketServer, link: Any) -> None:
        self._served = handlers
        self.handlers = FaultyHandlers(handlers)
        self._disk = FaultyDisk()
        self._network = network
        self._link = link
        self._silent: set[str] = set()
        self._cut_off: set[str] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._connections: set[socket.socket] = set()
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        with address_of(path) as address:
            self._listener.bind(address)
            path.chmod(0o600)  # before it listens; the directory may be open to others
        self._listener.listen()
        threading.Thread(target=self._accept, name="fault-control", daemon=True).start()
        log.warning("faults can be asked for at %s: this broker is a test's", path)

    def close(self) -> None:
        """End every fault, and the threads."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accept
        self._listener.close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as e:
                if e.errno not in (errno.EMFILE, errno.ENFILE):
                    return  # closed
                self._closed.wait(_NO_DESCRIPTOR_S)
                continue
            self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="fault-control", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        mine: dict[
            str, str
        ] = {}  # names are the test's; it may ask anew while this connection still ends what it asked
        try:
            with connection, connection.makefile("rwb") as stream:
                for line in stream:
                    try:
                        with self._lock:
                            self._do(mine, **orjson.loads(line))
                        answer: dict[str, str] = {}
                    except KafkatoolError as e:
                        answer = {"error": str(e)}
                    except Exception as e:  # told to the test, which raises it
                        log.exception("a fault asked for cannot be had")
                        answer = {"error": f"{type(e).__name__}: {e}"}
                    stream.write(orjson.dumps(answer) + b"\n")
                    stream.flush()
        except OSError:
            pass  # the test is gone
        finally:
            self._connections.discard(connection)
            for name in mine.values():
                with self._lock:
                    self._end(name)

    def _do(self, mine: dict[str, str], do: str, name: str, **what: Any) -> None:
        name = mine.setdefault(name, f"{id(mine)} {name}")
        match do:
            case "answer":
                self.handlers.add(name, self._rule(what))
            case "fall silent":
                self._silent.add(name)
                self._network.fall_silent()
            case "cut off from zookeeper":
                self._cut_off.add(name)
                self._link.cut_off()
            case "expire session":
                self._link.expire()
            case "slow disk":
                self._disk.slow(name, **what)
            case "fill disk":
                self._disk.fill(name, **what)
            case "end":
                self._end(name)
            case _:
                raise ValueError(f"no fault {do}")

    def _rule(self, what: dict[str, Any]) -> Rule:
        """Make a rule of what was asked for; APIs may be named by name."""
        served = {one.api.name.lower(): one for one in self._served.values()}
        if (asked := what.get("apis")) is not None:
            what["apis"] = keys = [self._key(served, str(api)) for api in asked]
            if what.get("topic") is not None and not any(names_topics(self._served[key].api.request) for key in keys):
                raise RefusedError(f"{', '.join(map(str, asked))} does not say what topic it is about")
        return Rule.from_json(what)

    def _key(self, served: Mapping[str, Served], api: str) -> int:
        if api.isdigit() and int(api) in self._served:
            return int(api)
        if api.lower() in served:
            return served[api.lower()].api.key
        near = difflib.get_close_matches(api.lower(), served, n=1)
        hint = f": did you mean {served[near[0]].api.name}?" if near else ""
        raise RefusedError(f"no API {api} is served{hint}")

    def _end(self, name: str) -> None:
        self.handlers.remove(name)
        self._disk.remove(name)
        if name in self._silent:
            self._silent.discard(name)
            if not self._silent:
                self._network.speak_again()
        if name in self._cut_off:
            self._cut_off.discard(name)
            if not self._cut_off:
                self._link.rejoin()
