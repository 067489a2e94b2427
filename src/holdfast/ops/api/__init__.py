"""The HTTP API and the page: FastAPI over an app."""

from __future__ import annotations
