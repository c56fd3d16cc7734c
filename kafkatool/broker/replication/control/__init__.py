"""What the controller orders: becoming leader or follower, stopping replicas, and the lines logged for it."""
