"""produce.py BOOTSTRAP TOPIC PARTITIONS MIB: that much data into each partition, for the pages of docs/commands."""

import sys

from confluent_kafka import Producer

bootstrap, topic, partitions, mebibytes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.kbytes": 1 << 18})
for _ in range(mebibytes):
    for partition in range(partitions):
        for _ in range(16):
            producer.produce(topic, b"x" * 65_536, partition=partition)
    producer.flush()
