"""REMEMBERS: the adapters that keep jobs, values and counts, one package each."""

from __future__ import annotations
