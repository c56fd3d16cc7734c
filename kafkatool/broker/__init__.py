"""A Kafka broker and controller of ZooKeeper mode, embeddable and runnable as a process."""
