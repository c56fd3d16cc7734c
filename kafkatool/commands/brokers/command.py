"""``kt brokers``: who holds and leads how much."""

import click

from kafkatool.commands.brokers import rendering
from kafkatool.commands.shared.bootstrap import Bootstrap, connect_brokers
from kafkatool.commands.shared.credentials import broker_connections
from kafkatool.commands.shared.options import (
    KtCommand,
    cluster_id_option,
    cluster_options,
    connect,
    output_option,
)
from kafkatool.commands.shared.output import Output
from kafkatool.core.errors import NoPermissionError
from kafkatool.core.operations.brokers.answers import ask_brokers
from kafkatool.core.operations.brokers.overview import lay_out, told_rates
from kafkatool.core.operations.reassignment.throttles import RATES, rates_by_broker
from kafkatool.core.operations.requests import cluster_view as by_request
from kafkatool.core.zookeeper.cluster_view import read_cluster


@click.command(
    cls=KtCommand,
    examples=("kt brokers --zookeeper zk1:2181/kafka", "kt brokers --bootstrap-server b1:9092 --output json"),
    columns=rendering.COLUMNS,
    notes=(
        "* is the controller; with KRaft, where none of these need be it, none is marked. software: told by the requests "
        "that the broker serves. out_of_isr: replicas that are not in sync. imbalance: share of the partitions that prefer "
        "the broker and are led by others. bytes, free_bytes: by log directory; what a broker too old for DescribeLogDirs "
        "(before 1.0, free before 3.3) does not tell is null.",
        "Exit code 1: a registered broker did not answer in 5 s; its own columns are empty. A broker that is named in an "
        "assignment and not registered is listed as dead. It is 1, too, where a right is missing without which the "
        "table is not whole; stderr says which, and what is not known.",
    ),
)
@cluster_options
@cluster_id_option
@output_option
def brokers(zookeeper: str, bootstrap: Bootstrap | None, cluster_id: str | None, out: Output) -> int:
    """Show who holds and leads how much."""
    if bootstrap is not None:
        with connect_brokers(bootstrap, cluster_id=cluster_id) as client:
            view = by_request.read_cluster(client, moves=False)
            answers = ask_brokers(view.brokers.values(), client.connections, configs=RATES, unseen=out.unseen)
        rates = told_rates(answers)
    else:
        with connect(zookeeper, cluster_id=cluster_id) as zk:
            view = read_cluster(zk)
            try:
                rates = rates_by_broker(zk)
            except NoPermissionError as e:
                rates = {}
                out.note(f"kt: warning: {e}: throttles are not known")
        answers = ask_brokers(view.brokers.values(), broker_connections(), unseen=out.unseen)
    out.show(rendering.answer(lay_out(view, answers, rates), answers.silent, view.cluster_id))
    for broker, error in sorted(answers.silent.items()):
        out.note(f"broker {broker}: {error}")
    return 1 if answers.silent else 0
