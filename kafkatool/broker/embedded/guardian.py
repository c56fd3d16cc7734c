"""The process that ends a cluster when nobody uses it any more, however its users ended: ``python -m … DIRECTORY``.

It waits for the lock that users share, which the kernel gives it when the last of them is gone, be it by SIGKILL. A
process of its own, as the others cannot do it: a broker may be frozen, and ZooKeeper knows nothing of us. Until then it
has loaded next to nothing.
"""

import contextlib
import fcntl
import sys
from pathlib import Path


def main(directory: Path, *, remove: bool) -> None:
    """Wait until the cluster is abandoned, then end its processes, and remove what is temporary."""
    with (directory / "users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        from kafkatool.broker.embedded.cluster import EmbeddedCluster
        from kafkatool.broker.embedded.cluster_files import ClusterFiles, remove_directory, still_of
        from kafkatool.core.errors import KafkatoolError

        if not still_of(directory, users.fileno()):
            return  # what is there now is another's
        spec = ClusterFiles(directory).load()
        if spec is not None and not spec.owned:
            return  # started since then for nobody in particular: it is to go on
        with contextlib.suppress(KafkatoolError):
            EmbeddedCluster(directory=directory).down(gentle=False, wait=True)
        if remove:
            remove_directory(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), remove="--remove" in sys.argv)
