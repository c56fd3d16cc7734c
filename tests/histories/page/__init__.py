"""The parts of the page of a run: where times lie on it, who did what, which faults there were, what lay at which offset."""
