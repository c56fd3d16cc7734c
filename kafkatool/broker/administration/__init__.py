"""What the admin APIs do, beyond the handler that answers: topics, configs, deleted records, producer ids."""
