"""What the Python client programs share: their lines, their records, the end of stdin. See README.md here."""

import faulthandler
import json
import os
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

PAUSE_S: Final = 0.05
"""Between two records of ``load``."""
ONLY_NAMES_A_GROUP: Final = "only-names-a-group"
"""Client id of a consumer that reads nothing: librdkafka has a group named by one alone."""
SESSION_OF_SEVERAL_MS: Final = 15_000
"""Of a group's member that is ``copy`` beside others: they are to take over from one that is killed or stopped."""


def login() -> dict[str, str]:
    """Return what the file of CLIENT_CONFIG says, in librdkafka's words; nothing where there is none."""
    if not (path := os.environ.get("CLIENT_CONFIG")):
        return {}
    return dict(line.partition("=")[::2] for line in Path(path).read_text().splitlines())


def python_login() -> dict[str, Any]:
    """Return the same in the words of aiokafka and kafka-python."""
    if not (told := login()):
        return {}
    found: dict[str, Any] = {"security_protocol": told["security.protocol"]}
    if "ssl.ca.location" in told:
        found["ssl_context"] = context = ssl.create_default_context(cafile=told["ssl.ca.location"])
        if "ssl.key.location" in told:
            context.load_cert_chain(told["ssl.certificate.location"], told["ssl.key.location"])
    if mechanism := told.get("sasl.mechanism"):
        user, password = told["sasl.username"], told["sasl.password"]
        found |= {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
    return found


def emit(**line: object) -> None:
    """Print one JSON line on stdout, at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def value(prefix: str, number: int) -> bytes:
    """Return the value of record ``number``."""
    return b"%s-%d-%s" % (prefix.encode(), number, b"x" * 100)


def emit_record(topic: str, partition: int, offset: int, key: bytes, content: bytes) -> None:
    emit(record=[topic, partition, offset, key.decode(), content.decode()])


def stdin_ended() -> threading.Event:
    """Return an event that is set when stdin ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def paced(ended: threading.Event) -> Iterator[int]:
    """Record numbers, one every ``PAUSE_S``, until the event is set."""
    number = 0
    while not ended.wait(PAUSE_S):
        yield number
        number += 1


class Assignment:
    """Tells a member's partitions whenever they have changed."""

    def __init__(self) -> None:
        self._partitions: list[int] = []

    def note(self, partitions: Iterable[int]) -> None:
        now = sorted(partitions)
        if now != self._partitions:
            self._partitions = now
            emit(assigned=now)


class Transactor(Protocol):
    """A transactional producer, as most libraries name what it does."""

    def init_transactions(self) -> object: ...
    def begin_transaction(self) -> object: ...
    def commit_transaction(self) -> object: ...
    def abort_transaction(self) -> object: ...


def transact(
    make: Callable[[str, int], Transactor],
    send: Callable[[Any, str, int, str, bytes], object],
    offsets: Callable[[Any, str, str, int, int], object],
) -> None:
    """Do what the lines of stdin say: ``NAME init TRANSACTIONAL_ID TIMEOUT_MS``, then what that producer is to do."""
    producers: dict[str, Any] = {}
    for line in sys.stdin:
        name, verb, *arguments = line.split()
        try:
            if verb == "init":
                producers[name] = make(arguments[0], int(arguments[1]))
                producers[name].init_transactions()
            elif verb == "send":
                topic, partition, key, prefix = arguments
                send(producers[name], topic, int(partition), key, value(prefix, int(key)))
            elif verb == "offsets":
                group, topic, partition, offset = arguments
                offsets(producers[name], group, topic, int(partition), int(offset))
            else:
                getattr(producers[name], f"{verb}_transaction")()
        except Exception as e:  # noqa: BLE001 - whatever the library says is the outcome
            emit(failed=f"{type(e).__name__}: {e}")
        else:
            emit(done=verb)


def run(commands: dict[str, Callable[..., Any]]) -> None:
    """Call the command that the command line names; COUNT becomes a number. SIGQUIT has it say where it stands."""
    faulthandler.register(signal.SIGQUIT, chain=False)
    name, *arguments = sys.argv[1:]
    commands[name](*[int(a) if a.isdigit() else a for a in arguments])
