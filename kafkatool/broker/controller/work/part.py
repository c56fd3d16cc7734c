"""The base of the parts of a term that work on partitions."""

from collections.abc import Callable
from dataclasses import dataclass

from kafkatool.broker.controller.context import ControllerContext
from kafkatool.broker.controller.deciding.partition_machine import PartitionStateMachine
from kafkatool.broker.controller.deciding.replica_machine import ReplicaStateMachine
from kafkatool.broker.controller.telling.request_batch import RequestBatch
from kafkatool.broker.controller.writing.zookeeper_writes import FencedZooKeeper
from kafkatool.core.zookeeper.session import Watch, WatchEvent, ZooKeeper


@dataclass(eq=False)
class Part:
    """The things all of them work with; each declares itself what it needs beside. `Term` makes and connects them."""

    context: ControllerContext
    session: ZooKeeper  # to read and watch; all writes go through ``zookeeper``
    zookeeper: FencedZooKeeper
    batch: RequestBatch
    partitions: PartitionStateMachine
    replicas: ReplicaStateMachine
    watch_on: Callable[[str, Callable[[WatchEvent], None]], Watch]
    """Makes a watch that has a function called on the event thread with what fired, unless the term is over by then."""
