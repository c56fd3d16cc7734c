"""The cluster of this simulation: brokers that only obey, and keep their ISRs (``process``)."""

from tests.simulation.process import Process
from tests.simulation.realm import Realm


class Cluster(Realm[Process]):
    """``processes`` holds the latest life of each broker, dead or alive."""

    def begin_life(self, broker: int) -> Process:
        return Process(self, broker, self.disks[broker])
