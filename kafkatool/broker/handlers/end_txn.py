"""EndTxn (key 26), versions 0-3: commit or abort a transaction (TXN-39 to 42; KIP-98)."""

from kafkatool.broker.handlers.authorization import transactional_id
from kafkatool.broker.handlers.call import Call, Served, fenced
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages.end_txn import API, EndTxnRequest, EndTxnResponse

_KNOWS_FENCED = 2


@Served(API, versions=(0, 3), asks=(transactional_id(Operation.WRITE),))
def handle(request: EndTxnRequest, call: Call) -> None:
    """Answer when the decision is replicated; from then on nothing changes it."""
    call.context.transactions.end(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        committed=request.committed,
        done=lambda code: call.respond(EndTxnResponse(error_code=fenced(code, call, since=_KNOWS_FENCED))),
    )
