"""The documents' reactor: acceptor -> processors -> bounded request channel -> handler pool -> back (BRK-5 to 21).

epoll does the hand-overs between threads. A connection is armed for one event at a time (EPOLLONESHOT) and whoever
owns it re-arms it, from any thread: the acceptor gives a socket to a processor by registering it, a handler that wrote
a whole response re-arms reading, one that could not arms writing and so hands the rest to the processor. Nobody needs
waking for that; the eventfd is rung only for a stop and when a full request channel has room again.
"""
