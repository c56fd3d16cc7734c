"""One recorder per client library: what a process of the workload does, and what it may say of it."""
