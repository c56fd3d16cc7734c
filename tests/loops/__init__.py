"""Consume-transform-produce loops of client libraries: each record that came has gone out once, whatever went wrong."""
