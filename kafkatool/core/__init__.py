"""What both the commands and the broker stand on: model, znodes, ZooKeeper session, wire protocol, operations."""
