"""What a secured cluster of this machine has besides: certificates, users, rights, and files that clients log in with."""

__all__ = ["certificates", "rights", "security"]
