"""Somebody's own site, with the page mounted under a prefix."""

from __future__ import annotations

from fastapi import FastAPI

from holdfast.ops.api import build_api
from tests.browser.shop import app

site = FastAPI()
site.mount("/ops/holdfast", build_api(app))


@site.get("/")
def home() -> str:
    """What the site is really about."""
    return "the shop"
