"""A web site on loopback for tests of crawlers: linked pages, faults by plan, and a log of every request."""

from __future__ import annotations

from holdfast.testing.site.fates import FATES, Fate, Kind, Outcome
from holdfast.testing.site.host import Stats
from holdfast.testing.site.log import (
    Request,
    early,
    most_in_flight,
    read_log,
    requests_by_path,
    starts_in_any_window,
)
from holdfast.testing.site.plan import Burst, Site
from holdfast.testing.site.process import SiteProcess

__all__ = [
    "FATES",
    "Burst",
    "Fate",
    "Kind",
    "Outcome",
    "Request",
    "Site",
    "SiteProcess",
    "Stats",
    "early",
    "most_in_flight",
    "read_log",
    "requests_by_path",
    "starts_in_any_window",
]
