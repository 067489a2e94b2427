"""App and Task: what users write."""

from __future__ import annotations

from holdfast.app.app import App
from holdfast.app.job import Job, RunResult
from holdfast.app.task import Task

__all__ = ["App", "Job", "RunResult", "Task"]
