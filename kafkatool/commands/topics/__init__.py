"""``kt topics``: one file per action, and the flags they share."""
