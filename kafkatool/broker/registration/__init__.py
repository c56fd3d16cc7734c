"""A broker's place in the cluster: its id, its registration in ZooKeeper, its orderly leaving."""
