"""Moving partitions: making a plan, writing the request, throttles, and a run that can be interrupted anywhere."""
