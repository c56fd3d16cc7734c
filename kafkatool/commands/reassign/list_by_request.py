"""``kt reassign --list``, asked of brokers or of controllers: what moves, whoever began it (ADM-41)."""

from dataclasses import dataclass

from kafkatool.commands.reassign.modes import Mode
from kafkatool.commands.reassign.rows import COLUMNS, item
from kafkatool.commands.shared.output import Answer
from kafkatool.core.model.moves import Move, Status
from kafkatool.core.operations.requests.moving import list_lines, read_moves


@dataclass(frozen=True, slots=True, kw_only=True)
class ListByRequest(Mode):
    """The flags of ``--list``, which has none of its own."""

    LACKING = ""

    def carry_out(self) -> int:
        """Show what moves, whoever began it (ADM-41)."""
        with self.client() as client:
            moving = read_moves(client, needed=True)
            cluster_id = client.cluster_id
        moves = [Move(p, m.replicas, m.target, Status.IN_PROGRESS) for p, m in sorted(moving.items())]
        self.out.show(Answer(list_lines(moving), [item(m) for m in moves], COLUMNS, cluster_id))
        return 0
