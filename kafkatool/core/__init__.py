"""What both the commands and the broker stand on: model, znodes, ZooKeeper session, wire protocol, operations."""

__all__ = ["client", "errors", "java", "model", "operations", "planner", "protocol", "statelog", "zookeeper"]
