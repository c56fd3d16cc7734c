"""The writes of a controller to ZooKeeper, each bound to the controller epoch. Nothing here decides."""

__all__ = ["zookeeper_writes"]
