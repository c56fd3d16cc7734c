"""The documents' reactor: one acceptor a listener, processors, a bounded request channel, a handler pool (BRK-5 to 21)."""
