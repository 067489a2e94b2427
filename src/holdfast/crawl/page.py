"""A page as its handler gets it, the links that it follows and the items that it yields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from msgspec import Struct, json

from holdfast.crawl.text import decoded
from holdfast.crawl.trees import LexborNode, Tree, first, parse, select
from holdfast.crawl.urls import Links, domain_of
from holdfast.errors import Invalid, PageChanged
from holdfast.json_values import UNSTORABLE
from holdfast.runtime.crawl_origins import PagePayload

if TYPE_CHECKING:
    from holdfast.crawl.fetched import Fetched

T = TypeVar("T")

HTML: Final = frozenset({"", "text/html", "application/xhtml+xml", "application/xml", "text/xml"})
"""Content types of pages that have links; of one that does not say what it is, that is found by looking."""

_NEEDED: Final[Any] = object()
_NOTHING: Final[Mapping[str, Any]] = {}
_SHOWN: Final = 200
_LINKING: Final = frozenset({"a", "area", "link"})
_NOT_FOLLOWED: Final = '[rel~="nofollow" i]'
_NOFOLLOW: Final = frozenset({"nofollow", "none"})
_WITH_VALUES: Final = frozenset({"max-snippet", "max-image-preview", "max-video-preview", "unavailable_after"})


class Link(Struct, frozen=True):
    """A URL that a handler yields to have it fetched, if it is in the scope of the crawl and not known yet."""

    url: str
    """Absolute, in canonical form."""
    priority: int | None = None
    """A higher one is fetched first; None is 0."""
    data: Mapping[str, Any] = {}
    """What the handler of that page finds in its `page.data`; must be storable as JSON."""


class Item(Struct, frozen=True):
    """What a handler has yielded of a page, as users' sinks get it."""

    id: str
    """The page's id and the item's place among its items: the same whenever the page is handled again."""
    url: str
    data: Mapping[str, Any]


class Page:
    """A fetched page: what was asked for, what came, and its text, elements and links.

    It is decoded and parsed when that is first asked for. Like the tree beneath it, it is for one thread at a time.
    """

    __slots__ = ("_html", "_links", "_tree", "attempt", "domain", "fetched", "payload", "url")

    def __init__(self, fetched: Fetched, *, payload: PagePayload, attempt: int = 1) -> None:
        self.fetched = fetched
        self.payload = payload
        self.attempt = attempt
        self.url = payload.url
        self.domain = domain_of(payload.url)
        self._html: str | None = None
        self._tree: Tree | None = None
        self._links: Links | None = None

    def __repr__(self) -> str:
        return f"Page({self.url!r}, status={self.status})"

    # ---------------------------------------------------------------- what was asked for

    @property
    def depth(self) -> int:
        """How many links away from a seed it was found first."""
        return self.payload.depth

    @property
    def referrer(self) -> str:
        """The page that it was found on; "" for a seed."""
        return self.payload.referrer

    @property
    def data(self) -> Mapping[str, Any]:
        """What its link was given along."""
        return self.payload.data

    # ---------------------------------------------------------------- what came

    @property
    def final_url(self) -> str:
        """Where the redirects ended; the same as `url` without any."""
        return self.fetched.final_url

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.fetched.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the answer, with names in lower case."""
        return self.fetched.headers

    @property
    def body(self) -> bytes:
        """The body as it came, decompressed."""
        return self.fetched.body

    @property
    def content_type(self) -> str:
        """The content type in lower case without parameters, such as "text/html"; "" where none was said."""
        return self.fetched.content_type

    @property
    def html(self) -> str:
        """The body as text, in the encoding that it says it has; what cannot be decoded is replaced."""
        if self._html is None:
            self._html = decoded(self.fetched.body, self.fetched.charset)
        return self._html

    @property
    def tree(self) -> Tree:
        """The parsed page: selectolax's LexborHTMLParser. PageRefused where parsing it would take for ever."""
        if self._tree is None:
            self._tree = parse(self.html, url=self.url, domain=self.domain)
        return self._tree

    def json(self) -> Any:
        """The body as JSON. PageChanged where it is none."""
        body = self.fetched.body
        try:
            return json.decode(body if _is_utf8(body, self.fetched.charset) else self.html)
        except UNSTORABLE as error:
            raise PageChanged(
                f"{self.url}: the body is no JSON: {error}", url=self.url, cause=f"{self.domain}: no JSON"
            ) from None

    # ---------------------------------------------------------------- elements

    def select(self, selector: str) -> list[LexborNode]:
        """The elements that a CSS selector matches, in the order of the page."""
        return select(self.tree, selector)

    def first(self, selector: str) -> LexborNode | None:
        """The first element that a CSS selector matches."""
        return first(self.tree, selector)

    @overload
    def text(self, selector: str) -> str: ...

    @overload
    def text(self, selector: str, *, default: T) -> str | T: ...

    def text(self, selector: str, *, default: Any = _NEEDED) -> Any:
        """The text of the first match, with single spaces: "" where the element is empty.

        PageChanged where nothing matches, unless there is a default.
        """
        node = first(self.tree, selector)
        if node is not None:
            return " ".join(node.text().split())
        if default is _NEEDED:
            raise self.changed(f"nothing matches {selector}", f"no {selector}", selector=selector)
        return default

    def texts(self, selector: str) -> list[str]:
        """The texts of all matches, each with single spaces."""
        return [" ".join(node.text().split()) for node in select(self.tree, selector)]

    @overload
    def attr(self, selector: str, name: str) -> str: ...

    @overload
    def attr(self, selector: str, name: str, *, default: T) -> str | T: ...

    def attr(self, selector: str, name: str, *, default: Any = _NEEDED) -> Any:
        """An attribute of the first match: "" where it has no value.

        PageChanged where nothing matches or the match has no such attribute, unless there is a default.
        """
        node = first(self.tree, selector)
        found = None if node is None else node.attrs.sget(name, None)
        if found is not None:
            return found
        if default is not _NEEDED:
            return default
        if node is None:
            raise self.changed(f"nothing matches {selector}", f"no {selector}", selector=selector)
        raise self.changed(f"{selector} has no {name}", f"no {name} of {selector}", selector=selector)

    def changed(self, what: str, cause: str, *, selector: str = "") -> PageChanged:
        """The error for a page that is not what it was; handlers may raise it as well.

        The cause is in few words and without anything that differs from page to page: letters are grouped by it.
        """
        return PageChanged(f"{self.url}: {what}", url=self.url, cause=f"{self.domain}: {cause}", selector=selector)

    # ---------------------------------------------------------------- links

    def links(
        self, selector: str | None = None, *, priority: int | None = None, data: Mapping[str, Any] | None = None
    ) -> Iterator[Link]:
        """The links of the elements that match, or of anchors within these; of the whole page without a selector.

        Each URL once, in canonical form. What is no http URL is left out, and so are links that the page asks not to
        follow. A page that is no HTML has no links, and a selector that matches nothing gives none.
        """
        data = _checked(priority, data)
        if self.fetched.content_type not in HTML or self._asks_not_to_follow():
            return iter(())
        nodes = self._anchors() if selector is None else _linking(select(self.tree, selector))
        canonical = self._reader().canonical
        is_any_not_followed = self.tree.css_matches(_NOT_FOLLOWED)
        found: dict[str, Link] = {}
        for node in nodes:
            attributes = node.attrs
            href = attributes.get("href")
            if not href or href[0] == "#":
                continue
            if is_any_not_followed and "nofollow" in attributes.sget("rel").lower().split():
                continue
            if (url := canonical(href)) is not None:
                found[url] = Link(url, priority, data)
        return iter(found.values())

    def follow(self, url: str, *, priority: int | None = None, data: Mapping[str, Any] | None = None) -> Link:
        """A link to a URL, which may be relative to the page. Invalid where it is none that can be fetched."""
        data = _checked(priority, data)
        if (absolute := self._reader().canonical(url)) is None:
            raise Invalid(f"{self.url}: {url[:_SHOWN]!r} is no http URL that can be followed")
        return Link(absolute, priority, data)

    def _anchors(self) -> list[LexborNode]:
        tree = self.tree
        nodes = tree.tags("a")
        nodes += tree.tags("area")
        nodes += (node for node in tree.tags("link") if "next" in node.attrs.sget("rel").lower().split())
        return nodes

    def _reader(self) -> Links:
        """Reads links relative to the page, or to the address that its first <base> says."""
        if self._links is None:
            self._links = Links(self.fetched.final_url)
            for node in self.tree.tags("base") if self.fetched.content_type in HTML else ():
                if (href := node.attrs.get("href")) is not None:
                    if (base := self._links.canonical(href)) is not None:
                        self._links = Links(base)
                    break
        return self._links

    def _asks_not_to_follow(self) -> bool:
        if _forbids_following(self.fetched.headers.get("x-robots-tag", "")):
            return True
        return any(
            node.attrs.sget("name").lower() == "robots" and _forbids_following(node.attrs.sget("content"))
            for node in self.tree.tags("meta")
        )


def _forbids_following(rules: str) -> bool:
    for rule in rules.lower().split(","):
        name, colon, _ = rule.partition(":")
        if colon and name.strip() not in _WITH_VALUES:
            return False  # from here on it is for the robot of that name
        if not _NOFOLLOW.isdisjoint(rule.split()):
            return True
    return False


def _linking(matches: list[LexborNode]) -> Iterator[LexborNode]:
    for node in matches:
        if node.tag in _LINKING:
            yield node
        else:
            yield from node.css("a[href], area[href]")


def _checked(priority: int | None, data: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):
        raise Invalid(f"priority={priority!r}: must be a whole number")
    if data is None:
        return _NOTHING
    if not isinstance(data, Mapping):
        raise Invalid(f"data={type(data).__name__}: must be a mapping")
    return data


def _is_utf8(body: bytes, charset: str) -> bool:
    return charset.lower() in {"", "utf-8", "utf8"} and not body.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"))
