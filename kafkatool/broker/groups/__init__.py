"""The group coordinator and its log, __consumer_offsets (GRP)."""
