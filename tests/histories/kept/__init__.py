"""What is left of a run of real processes: a directory to be read, and a smaller run that shows the same (HIS-48)."""
