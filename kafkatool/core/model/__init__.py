"""The words of Kafka that everything else speaks: partitions, brokers, assignments, plan files, names and configs.

Pure values and pure functions. Nothing here opens a socket, reads ZooKeeper or knows a wire format.
"""
