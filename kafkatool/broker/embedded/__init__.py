"""A ZooKeeper process and a cluster of broker processes on this machine."""
