"""The peers of bench-streams, each by its own documentation; `consume` goes on until it is killed."""

from __future__ import annotations
