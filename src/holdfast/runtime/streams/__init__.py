"""Streams: messages of a source, run and judged as jobs are, and finished in order."""
