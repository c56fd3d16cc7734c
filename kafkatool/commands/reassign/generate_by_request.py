"""``kt reassign --generate`` with ``--bootstrap-server``: a plan for what brokers tell of the cluster (ADM-32)."""

import sys
from dataclasses import dataclass

from kafkatool.commands.reassign.generate import Generate
from kafkatool.core.errors import NotPermittedError, RefusedError, UsageError
from kafkatool.core.operations.requests.cluster_view import read_cluster, with_moves
from kafkatool.core.operations.requests.moving import read_moves
from kafkatool.core.operations.requests.topic_reading import missing
from kafkatool.core.planner.plan_files import Moves, parse_topics_to_move, plan_json_with_log_dirs, read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateByRequest(Generate):
    """The flags of ``--generate``."""

    def carry_out(self) -> int:
        """Propose a plan for the topics of the file; write nothing but the file of the plan (ADM-32)."""
        brokers, exclude = self.read_brokers()
        source = self.topics_to_move_json_file
        try:
            topics = parse_topics_to_move(read_text(source, sys.stdin), source, may_be_empty=True)
        except UsageError as e:
            unread = str(e).startswith("cannot read")
            raise RefusedError(
                f"Unable to read file {source}" if unread else "The input string is not a valid JSON", now=str(e)
            ) from e
        with self.client() as client:
            view = read_cluster(client, topics, moves=False, states=False)
            for topic in topics:
                if topic not in view.topics:
                    raise missing(client, topic, RefusedError(f"Topic {topic} not found."))
            try:
                view = with_moves(view, read_moves(client, view.partitions()))
            except NotPermittedError as e:
                self.out.note(f"{e}; whether any of it is being moved is not known: its replicas would be too many")
        try:
            return self.show(view, topics, brokers, exclude)
        except RefusedError as e:
            if str(e).startswith("replication factor: "):
                raise RefusedError(f"Replication factor: {str(e).partition(': ')[2]}.", now=e.now) from e
            raise

    def plan_text(self, moves: Moves) -> str:
        """Write a plan as Kafka's tool of 2.4 and later does."""
        return plan_json_with_log_dirs(moves)
