"""Who leads and who is in sync: pure selection, and the state machines of partitions and replicas."""
