"""Record batches on their way into a log: checked, stamped, rewritten, filtered."""
