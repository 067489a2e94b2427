"""The commands, one file a subject; each is imported when it is called, as what it needs costs time."""
