"""A ZooKeeper process and a cluster of broker processes on this machine.

Doors: `cluster` (a whole cluster), `running` (those that kt's commands find), `zookeeper_process`, `ports`, `processes`.
A broker is started by its command line and seen through its process, its files and the wire: nothing here imports the
server.
"""

__all__ = ["cluster", "running"]
