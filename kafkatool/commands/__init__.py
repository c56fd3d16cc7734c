"""The kt command line: options in, a core operation, its result rendered. The only place that knows click and rich."""
