"""Proving who one is, to ZooKeeper and to brokers: what client and server have in common.

Doors: ``scram`` (the messages of both sides), ``client_security`` (what a Kafka client's properties say),
``zookeeper_security`` (the login to ZooKeeper, and where it is told), ``handshake`` (TLS as a client, and why it fails),
``tls`` (contexts), ``jaas`` (login files) and ``kerberos`` (tickets). Behind them ``stores`` and ``jks`` read keys and
certificates, and a ``secret`` is shown by nothing.
"""

__all__ = ["client_security", "credential_files", "handshake", "jaas", "kerberos", "scram", "tls", "zookeeper_security"]
