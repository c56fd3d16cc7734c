"""kafkatool: admin command line, embeddable broker and controller, and log analysis for ZooKeeper-mode Kafka."""

__version__ = "0.1.0"
