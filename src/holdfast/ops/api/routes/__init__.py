"""The routes, by subject."""

from __future__ import annotations
