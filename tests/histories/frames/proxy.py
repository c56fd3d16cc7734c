"""The door of one broker that knows requests and answers: it hears them, and does to them what rules say.

Where no rule can meet anything, bytes go on as they came, in the segments they came in; they are read beside it.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from tests.faults.proxy import ANYONE, Link, Proxy
from tests.histories.frames.frame import (
    Asked,
    NotFramesError,
    Splitter,
    correlation_of,
    read_answer,
    read_request,
)
from tests.histories.frames.rules import Armed, Call, Hold, Late, Lose, Rules

_LOOK_AGAIN_S = 0.05


class Hears(Protocol):
    """Gets a line for each frame, and for each thing that was done to one."""

    def __call__(self, line: Mapping[str, Any], /) -> object: ...


class FrameProxy(Proxy):
    """A proxy with rules, for the broker of that number; what it hears of a frame it tells before the frame goes on."""

    def __init__(
        self,
        target_port: int,
        peer_of: Callable[[bytes], str] = lambda _: ANYONE,
        *,
        broker: int = 1,
        rules: Rules | None = None,
        hears: Hears = lambda _: None,
    ) -> None:
        self.broker = broker
        self.rules = rules if rules is not None else Rules()
        self.hears = hears
        self._talks: dict[Link, _Talk] = {}
        super().__init__(target_port, peer_of)

    def close(self) -> None:
        """End everything; what rules hold here is not delivered any more."""
        self._running = False
        for link in list(self._links):
            link.close()
        self.rules.clear()
        super().close()

    def _way(self, link: Link, source: socket.socket, sink: socket.socket) -> Callable[[bytes], None]:
        with self._lock:
            self._talks = {known: talk for known, talk in self._talks.items() if not known.closed}
            talk = self._talks.setdefault(link, _Talk(self, link))
        return _Asking(talk, sink) if source is link.client else _Answering(talk, sink)


class _Talk:
    """What is under way on one link."""

    def __init__(self, proxy: FrameProxy, link: Link) -> None:
        self.proxy, self.link = proxy, link
        self.asked: dict[int, Asked] = {}  # by correlation id, without an answer yet
        self.awaited: dict[int, Armed] = {}  # of these, those that a rule has met
        self.deserted = False  # no answer is passed on any more
        self._ends: list[int] | None = None

    def tell(self, what: str, asked: Asked, size: int | None = None, **more: Any) -> None:
        """Tell of a frame: when, between which ports, what it is."""
        if self._ends is None:
            server = self.link.server
            with contextlib.suppress(OSError):  # closed meanwhile: without an end
                self._ends = [self.link.client.getpeername()[1], server.getpeername()[1] if server else 0]
        self.proxy.hears(
            {
                "time": time.monotonic_ns(),
                "what": what,
                "broker": self.proxy.broker,
                "ends": self._ends,
                "api": asked.api,
                "version": asked.version,
                "correlation": asked.correlation,
                "client": asked.client,
                "size": asked.size if size is None else size,
                **more,
            }
        )


class _Way:
    """One direction of a link."""

    def __init__(self, talk: _Talk, sink: socket.socket) -> None:
        self._talk, self._sink = talk, sink
        self._splitter = Splitter()
        self._gone = 0  # so much of the frame that is not whole yet went on already: no rule can meet it
        self._is_other = False  # than Kafka's protocol in the clear

    def __call__(self, chunk: bytes) -> None:
        """Take what came. Raises OSError where it cannot go on."""
        if self._is_other:
            self._sink.sendall(chunk)
            return
        unsent = self._splitter.rest[self._gone :] + chunk
        try:
            frames = self._splitter.feed(chunk)
        except NotFramesError:
            self._is_other = True
            self._sink.sendall(unsent)
            return
        if self._is_free():
            for frame in frames:
                self._hear(frame)
            self._send(unsent)
            self._gone = len(self._splitter.rest)
            return
        for frame in frames:
            if self._gone:
                self._hear(frame)
                self._send(frame[self._gone :])
                self._gone = 0
            else:
                self._pass(frame)

    def _is_free(self) -> bool:
        """Tell whether no rule can be about what comes now."""
        raise NotImplementedError

    def _hear(self, frame: bytes) -> object:
        """Note the frame, and tell of it."""
        raise NotImplementedError

    def _pass(self, frame: bytes) -> None:
        """Hear the frame, and do with it what is to be done."""
        raise NotImplementedError

    def _send(self, data: bytes) -> None:
        self._sink.sendall(data)


class _Asking(_Way):
    """From the client to the broker."""

    def _is_free(self) -> bool:
        return self._talk.proxy.rules.spent

    def _hear(self, frame: bytes) -> Asked | None:
        asked = read_request(frame)
        if asked is not None:
            self._talk.asked[asked.correlation] = asked
            self._talk.tell("asked", asked, **asked.body)
        return asked

    def _pass(self, frame: bytes) -> None:
        talk, asked = self._talk, self._hear(frame)
        armed = None if asked is None else talk.proxy.rules.meet(asked)
        if asked is None or armed is None:
            self._send(frame)
            return
        match armed.rule.act:
            case Hold(seconds):
                talk.tell("held", asked)
                armed.released.wait(seconds)
                self._deliver(frame, asked)
                armed.done.set()
            case Late(seconds, silent):
                talk.awaited[asked.correlation] = armed
                talk.deserted = True
                talk.tell("deserted", asked)
                if not silent:
                    with contextlib.suppress(OSError):
                        talk.link.client.shutdown(socket.SHUT_RDWR)
                armed.released.wait(seconds)
                self._deliver(frame, asked)
                while not talk.link.closed and not armed.done.wait(_LOOK_AGAIN_S):
                    pass
                armed.done.set()
                self._end()
            case Lose():
                talk.awaited[asked.correlation] = armed
                self._send(frame)
            case Call("before", what):
                armed.call(what, talk.proxy.broker)
                self._deliver(frame, asked)
            case Call("delivered", what):
                talk.awaited[asked.correlation] = armed
                self._send(frame)
                armed.call(what, talk.proxy.broker)
                self._end()
            case Call():
                talk.awaited[asked.correlation] = armed
                self._send(frame)

    def _end(self) -> NoReturn:
        """End the link: what came behind this frame is lost, and counts for no rule."""
        self._talk.link.close()
        raise ConnectionAbortedError

    def _deliver(self, frame: bytes, asked: Asked) -> None:
        self._send(frame)
        self._talk.tell("delivered", asked)  # after "asked": it was kept meanwhile


class _Answering(_Way):
    """From the broker to the client."""

    def _is_free(self) -> bool:
        return not self._talk.awaited and not self._talk.deserted

    def _hear(self, frame: bytes) -> None:
        asked = self._talk.asked.pop(correlation_of(frame), None)
        if asked is not None:
            what = "lost" if self._talk.deserted else "answered"
            self._talk.tell(what, asked, len(frame), **read_answer(asked, frame))

    def _pass(self, frame: bytes) -> None:
        talk = self._talk
        armed = talk.awaited.pop(correlation_of(frame), None)
        act = armed.rule.act if armed is not None else None
        talk.deserted |= isinstance(act, Lose) or (isinstance(act, Call) and act.moment == "delivered")
        self._hear(frame)
        self._send(frame)
        if armed is None:
            return
        match act:
            case Late():
                armed.done.set()
            case Lose():
                talk.link.close()
                armed.done.set()
            case Call("answered", what):
                armed.call(what, talk.proxy.broker)

    def _send(self, data: bytes) -> None:
        if self._talk.deserted:
            return
        try:
            self._sink.sendall(data)
        except OSError:
            if not self._talk.deserted:
                raise
