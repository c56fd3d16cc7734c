"""``kt reassign --list``: the reassignments under way (RSN-38X)."""

from kafkatool.commands.reassign.modes import Mode
from kafkatool.commands.reassign.rows import COLUMNS, item
from kafkatool.commands.shared.options import read_cluster_id
from kafkatool.commands.shared.output import Answer
from kafkatool.core.model.values import join_ids
from kafkatool.core.operations.reassignment.status import list_running


class ShowRunning(Mode):
    """The flags of ``--list``: those of every mode."""

    def carry_out(self) -> int:
        """Show targets, current replicas and ISR of what is being reassigned."""
        with self.session() as zk:
            moves = list_running(zk)
            cluster_id = None if self.out.is_text else read_cluster_id(zk)
        lines = ["Current partition reassignments:" if moves else "No partition reassignments found."]
        lines += [
            f"{self.name_of(m.partition)}: replicas: {join_ids(m.current)}. target: {join_ids(m.target)}. "
            f"isr: {join_ids(m.isr)}."
            for m in moves
        ]
        items = [{**item(m), "isr": list(m.isr)} for m in moves]
        self.out.show(Answer(lines, items, (*COLUMNS, "isr"), cluster_id))
        return 0
