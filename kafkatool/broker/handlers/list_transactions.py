"""ListTransactions (key 66), versions 0-1: the transactional ids that this broker coordinates (TXN-94; KIP-664, KIP-994)."""

from kafkatool.broker.handlers.authorization import by_handler
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.transactions.states import TransactionState
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.protocol.messages import list_transactions as wire

_STATES = {state.label: state for state in TransactionState}


@Served(wire.API, versions=(0, 1), asks=(by_handler,))
def handle(request: wire.ListTransactionsRequest, call: Call) -> wire.ListTransactionsResponse:
    """List those that pass all filters; a name that is no state matches nothing and is told."""
    error, found = call.context.transactions.list()
    now_ms = call.context.transactions.now_ms()
    states, producers = set(request.states), set(request.producer_ids)
    return wire.ListTransactionsResponse(
        error_code=error,
        unknown_states=[name for name in dict.fromkeys(request.states) if name not in _STATES],
        transactions=[
            wire.ListedTransaction(transactional_id=id_, producer_id=value.producer_id, state=value.state.label)
            for id_, value in found
            if call.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, id_, asked=False)
            and (not states or value.state.label in states)
            and (not producers or value.producer_id in producers)
            and (request.duration_ms < 0 or now_ms - value.start_ms > request.duration_ms)
        ],
    )
