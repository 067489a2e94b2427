"""Whole fleets in one process, under a clock that nobody waits for: every seed is a history that can be had again."""
