"""``kt topics``: a module for each kind of action, and the flags they share.

Door: `group`. Checks and writes are `core/operations/topics`; nothing here spells a znode's path or content.
"""
