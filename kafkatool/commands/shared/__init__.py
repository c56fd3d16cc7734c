"""What the commands share: options, output, settings, progress and signals."""
