"""Challenge, captcha and login pages that came instead of what was asked for, told by headers and structure.

Never by words: an article about captchas has all the words, and no page of a maker of challenges needs any of them.
"""

from __future__ import annotations

import math
import re
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from holdfast.crawl.fetched import Fetched
from holdfast.crawl.makers import HEADERS, MAKERS
from holdfast.crawl.page import HTML, Page
from holdfast.crawl.trees import LexborNode, Tree
from holdfast.errors import PageRefused

Kind = Literal["challenge", "captcha", "login"]

BLOCKING: Final = frozenset({401, 403, 405, 429, 503})
"""Statuses that pages of this kind come with, so that it is worth a look."""

_MOST_BODY: Final = 256 * 1024  # as fetched; those pages are small
_FEW_LINKS: Final = 12
_LITTLE_TEXT: Final = 2_000
_MARKERS: Final = (
    b"captcha",
    b"challenge",
    b"turnstile",
    b"_Incapsula_",
    b"sucuri_",
    b"KPSDK",
    b"sec-cpt",
    b"bm-verify",
)

_WIDGETS: Final = (
    ".g-recaptcha, .h-captcha, .cf-turnstile, .frc-captcha, .geetest_captcha, #px-captcha, altcha-widget,"
    ' iframe[src*="/recaptcha/"], iframe[src*="hcaptcha.com"], iframe[src*="challenges.cloudflare.com"],'
    ' form[action*="captcha" i] img, form img[src*="captcha" i]'
)
_ASKED_OF_PEOPLE: Final = (
    "textarea:not([name=g-recaptcha-response]):not([name=h-captcha-response]), select,"
    " input[type=email], input[type=tel], input[type=password], input[type=search], input[type=file]"
)
_PLAIN_FIELDS: Final = "input[type=text], input:not([type])"
_UNSEEN: Final = "body script, body style, body noscript, body template"

_LOGIN_WORDS: Final = "(?:wp-)?log[-_]?in|sign[-_]?in|log[-_]?on|sign[-_]?on|sso|auth|authenticate|sessions?/new"
_is_login_path = re.compile(rf"/(?:user[-_])?(?:{_LOGIN_WORDS})(?:\.\w{{2,5}})?/?$", re.IGNORECASE).search
_RETURNS: Final = frozenset(
    "next return returnto return_to returnurl return_url continue redirect redirect_to redirect_uri redirecturl"
    " redirect_url goto from service back backurl url target dest destination samlrequest ref".split()
)


class Sign(Struct, frozen=True):
    """What came instead of the page, and what it was told by: the maker's name, or the part of the page."""

    kind: Kind
    by: str


def is_suspect(fetched: Fetched) -> bool:
    """Whether it is worth a closer look: quick, and no for nearly all pages."""
    if fetched.status in BLOCKING or not HEADERS.keys().isdisjoint(fetched.headers):
        return True
    if fetched.final_url != fetched.url and told_by_redirect(fetched.url, fetched.final_url):
        return True
    body = fetched.body
    if len(body) > _MOST_BODY or len(body.split(b"<a ", _FEW_LINKS + 1)) > _FEW_LINKS + 1:
        return False
    return any(marker in body for marker in _MARKERS)


def told_by(page: Page, *, has_expected: bool | None = None) -> Sign | None:
    """What came instead of the page; None where it seems to be the page itself.

    has_expected: whether it has any of the selectors that are expected of it; None: nothing is known of that.
    """
    for name, told in HEADERS.items():
        if kind := told.kinds.get(page.headers.get(name, "").partition(";")[0].strip().lower()):
            return Sign(kind, told.by)
    if page.content_type not in HTML or len(page.body) > _MOST_BODY:
        return None
    try:
        tree = page.tree
    except PageRefused:
        return None
    return _told_by_makers(tree) or _told_by_captcha(tree, has_expected) or _told_by_login(tree, page, has_expected)


def told_by_redirect(asked: str, target: str) -> Sign | None:
    """Whether a redirect leads to a login: a path of that name, which is not what was asked for.

    Without the page itself, the path must be all there is, or the query must say where to go after it.
    """
    there = urlsplit(target)
    if not _is_login_path(there.path) or _is_login_path(urlsplit(asked).path):
        return None
    names = {name.lower() for name, _ in parse_qsl(there.query)}
    came_from = unquote(urlsplit(asked).path)
    if names & _RETURNS or not there.query or (len(came_from) > 1 and came_from in unquote(there.query)):
        return Sign("login", "redirect")
    return None


# ---------------------------------------------------------------- the kinds


def _told_by_makers(tree: Tree) -> Sign | None:
    text = _readable(tree)
    for maker in MAKERS if text <= _LITTLE_TEXT else ():
        if text > maker.most_text or not tree.css_matches(maker.selector):
            continue
        if not maker.script or tree.scripts_contain(maker.script):
            return Sign(maker.kind, maker.by)
    return None


def _told_by_captcha(tree: Tree, has_expected: bool | None) -> Sign | None:
    """A captcha, and nothing else that anybody would come for: no form of its own, no text, hardly a link."""
    if has_expected or not tree.css_matches(_WIDGETS) or not _is_sparse(tree):
        return None
    if tree.css_matches(_ASKED_OF_PEOPLE) or len(tree.css(_PLAIN_FIELDS)) > 1:
        return None
    return Sign("captcha", "form")


def _told_by_login(tree: Tree, page: Page, has_expected: bool | None) -> Sign | None:
    """A form for a password, where something else was asked for."""
    if has_expected or _is_login_path(urlsplit(page.url).path) or not tree.css_matches("form input[type=password]"):
        return None
    if page.final_url != page.url and (sign := told_by_redirect(page.url, page.final_url)):
        return sign
    if (has_expected is False or page.status in BLOCKING) and _is_sparse(tree):
        return Sign("login", "form")
    return None


def _is_sparse(tree: Tree) -> bool:
    return _readable(tree) <= _LITTLE_TEXT


def _readable(tree: Tree) -> float:
    """How many characters there are to read; without end where there are many places to go to as well."""
    if tree.body is None or len(tree.tags("a")) > _FEW_LINKS:
        return math.inf
    return _length(tree.body) - sum(_length(node) for node in tree.css(_UNSEEN))


def _length(node: LexborNode) -> int:
    return len(" ".join(node.text().split()))
