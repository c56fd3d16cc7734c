"""A Kafka broker and controller of ZooKeeper mode, embeddable and runnable as a process."""

__all__ = ["controller", "embedded", "runtime", "server", "settings"]
