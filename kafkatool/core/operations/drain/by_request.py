"""A drain by requests alone, with and without ZooKeeper. What brokers may hide is never taken for not being there."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.unseen import Unseen
from kafkatool.core.operations.brokers.answers import BrokerAnswer
from kafkatool.core.operations.drain import requested_throttles
from kafkatool.core.operations.drain.requested_round import RequestedRound
from kafkatool.core.operations.drain.requested_throttles import NotAsBefore
from kafkatool.core.operations.drain.way import Look, Terms, ask
from kafkatool.core.operations.reassignment.following import Progress
from kafkatool.core.operations.reassignment.runs.saved_run import RunFiles
from kafkatool.core.operations.reassignment.submission import MAX_BATCH_BYTES, Submission
from kafkatool.core.operations.reassignment.throttles import SavedThrottle
from kafkatool.core.operations.requests import cluster_view
from kafkatool.core.operations.requests.moving import read_moves
from kafkatool.core.operations.requests.throttles import Throttle
from kafkatool.core.operations.requests.topic_reading import read_topics
from kafkatool.core.planner.plan_files import Moves, split_plan
from kafkatool.core.protocol.messages import alter_partition_reassignments, incremental_alter_configs
from kafkatool.core.protocol.messages.describe_quorum import METADATA_TOPIC
from kafkatool.core.zookeeper.view import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested(Submission):
    """A plan for the controller, with the throttles that are set before."""

    throttles: tuple[SavedThrottle, ...]

    @property
    def saved(self) -> tuple[SavedThrottle, ...]:
        return self.throttles


class ByRequest:
    """The way of one client, which notes for each look what it was not told."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def look(self, asked: Collection[int] | None) -> Look:
        """Read the whole cluster. Raises BrokerAnswerError, BrokerUnreachableError, UnsupportedApiError."""
        client = self._client
        client.begin_anew()
        client.note_anew(Unseen())
        view = self._read()
        answers = ask(view, asked, client.connections)
        client.begin_anew()
        on_disks = {
            p.topic for answer in answers.told.values() for d in answer.log_dirs or () for p in (*d.sizes, *d.arriving)
        }
        strange = sorted(on_disks.difference(view.topics) - {METADATA_TOPIC})
        # By its name it is told whether a topic may be described; one that is being deleted just does not exist.
        if strange and read_topics(client, strange):
            view = self._read()  # it was made meanwhile
        blind = tuple(b for b in view.brokers if asked is None and not _tells(answers.told.get(b)))
        return Look(view, answers, tuple(found.text for found in client.unseen), blind)

    def prepare(self, look: Look, moves: Moves, terms: Terms) -> Requested:
        """Cut the plan into batches, and read what throttles are. Raises NotPermittedError, UnsupportedApiError."""
        client = self._client
        client.version_of(alter_partition_reassignments.API)
        current = {p: tuple(look.view.topics[p.topic].assignment[p.partition]) for p in moves}
        saved: tuple[SavedThrottle, ...] = ()
        if terms.throttle is not None and moves:
            client.version_of(incremental_alter_configs.API)
            saved = requested_throttles.plan(client, Throttle.of(moves, current, {}), terms.throttle)
        return Requested(
            moves=moves,
            batches=tuple(split_plan(moves, max_bytes=MAX_BATCH_BYTES, max_count=terms.batch_partitions)),
            current=current,
            way_back=current,
            controller=True,
            throttle=terms.throttle,
            max_bytes=MAX_BATCH_BYTES,
            max_count=terms.batch_partitions,
            throttles=saved,
        )

    def round(self, plan: Moves, files: RunFiles, on_progress: Callable[[Progress], None]) -> RequestedRound:
        return RequestedRound(self._client, plan, files, on_progress=on_progress)

    def find_not_as_before(self, saved: Sequence[SavedThrottle]) -> NotAsBefore:
        self._client.begin_anew()
        return requested_throttles.find_not_as_before(self._client, saved)

    def _read(self) -> ClusterView:
        view = cluster_view.read_cluster(self._client, moves=False)
        moving = {p: m.target for p, m in read_moves(self._client, needed=True).items()}
        return replace(view, reassignment=moving or None)


def _tells(answer: BrokerAnswer | None) -> bool:
    return answer is not None and answer.log_dirs is not None and not any(d.offline for d in answer.log_dirs)
