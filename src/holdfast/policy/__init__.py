"""Decides: pure values and functions of (state, input, now, rng)."""
