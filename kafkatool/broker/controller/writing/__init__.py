"""Writing to ZooKeeper, each write bound to the controller epoch."""
