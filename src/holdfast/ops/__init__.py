"""Shows: the command line."""
