"""``kt transactions``: transactional ids, producers and hanging transactions, in the words of kafka-transactions.

`show` lists and describes, `hanging` finds and aborts, both through ``core/operations/requests/transactions``.
"""
