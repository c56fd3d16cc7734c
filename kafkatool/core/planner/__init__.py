"""Plans of replica moves: how they are made, what they mean, and the files that hold them.

Doors: `minimal` (the fewest moves, by the search of `balancing`), `kafkas` (as Kafka's own tool plans), `consequences`,
`strategy` (the two of them by name), and `plan_files`, which also reads and writes the files of elections. No plan reads
ZooKeeper, a clock or random numbers of its own; only `plan_files` touches the disk.
"""

__all__ = ["consequences", "kafkas", "minimal", "plan_files", "strategy"]
