"""HTML into trees that CSS selectors can be asked of."""

from __future__ import annotations

from holdfast.crawl.extras import wanted
from holdfast.crawl.tangles import eased, tangle_of
from holdfast.errors import ConfigError, PageRefused

with wanted():
    from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

__all__ = ["LexborNode", "Tree", "first", "parse", "refuse_bad_selector", "select"]

Tree = LexborHTMLParser


def parse(html: str, *, url: str, domain: str) -> Tree:
    """The tree of a page. PageRefused where it would take too long, or more memory than there is."""
    if tangle_of(html) and (tangle := tangle_of(html := eased(html))):
        raise PageRefused(f"{url}: is not parsed: {tangle}", url=url, cause=f"{domain}: {tangle}")
    return LexborHTMLParser(html)


def select(tree: Tree, selector: str) -> list[LexborNode]:
    """What a selector matches, in the order of the page. ConfigError where it is no selector."""
    try:
        return tree.css(selector)
    except (SelectolaxError, UnicodeEncodeError):
        raise _refusal(selector) from None


def first(tree: Tree, selector: str) -> LexborNode | None:
    """The first that a selector matches. ConfigError where it is no selector."""
    try:
        return tree.css_first(selector)
    except (SelectolaxError, UnicodeEncodeError):
        raise _refusal(selector) from None


def refuse_bad_selector(selector: object) -> None:
    """ConfigError where it is no CSS selector."""
    if not isinstance(selector, str):
        raise ConfigError(f"selector={selector!r}: must be a CSS selector, as a text")
    first(LexborHTMLParser("<p>"), selector)


def _refusal(selector: str) -> ConfigError:
    return ConfigError(f"selector={selector!r}: is no CSS selector that can be read, such as 'h1' or '.price'")
