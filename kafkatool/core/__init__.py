"""What both the commands and the broker stand on: model, znodes, ZooKeeper session, wire protocol, operations."""

__all__ = [
    "class_data",
    "client",
    "collecting",
    "errors",
    "java",
    "java_properties",
    "model",
    "operations",
    "planner",
    "protocol",
    "security",
    "statelog",
    "zookeeper",
]
