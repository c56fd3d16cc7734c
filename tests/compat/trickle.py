"""Records that keep coming while clients read them and something is done to brokers."""

import threading
from collections import defaultdict
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

PARTITIONS: Final = 3
"""Of each topic, which have the records in turn."""
_FLUSH_S: Final = 150


class Trickle:
    """Twenty records a second into each topic, with acks=all; notes the keys acknowledged."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        self.acknowledged: defaultdict[str, set[str]] = defaultdict(set)
        self.errors: list[str] = []
        self._topics = topics
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.05):
            for topic in self._topics:
                self._producer.produce(topic, b"value", str(number), number % PARTITIONS, on_delivery=self._note)
            number += 1
            self._producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        key, topic = message.key(), message.topic()
        if error is not None or key is None or topic is None:
            self.errors.append(str(error))
        else:
            self.acknowledged[topic].add(key if isinstance(key, str) else key.decode())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(_FLUSH_S) == 0
