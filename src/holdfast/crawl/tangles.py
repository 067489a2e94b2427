"""HTML that would keep the parser busy for minutes, or make it take gigabytes, is told before it is parsed.

Of a page that is made for it, parsing takes the product of two things: of its tags and how deeply they are nested; of
the attributes of one tag and themselves; of the formatting elements that are never closed (<b>, <font> …) and the
paragraphs after these, each of which gets its own copy of them all. Small pages cannot do harm and are not looked at.
What is found of larger ones is an upper bound, quick to have, and the limits are far above what ordinary pages have.
"""

from __future__ import annotations

import re
from typing import Final

DEEPEST: Final = 1_000
"""Elements within each other. Browsers stop at 512."""
MOST_ATTRIBUTES: Final = 2_000
"""Of one tag."""
MOST_COPIES: Final = 1_000_000
"""Formatting elements that are open at once, times the tags of the page; an element takes about 400 bytes."""

_FEW_TAGS: Final = 1_500  # at worst 500,000 elements
_MORE_TAGS: Final = 20_000  # at worst half a second for nesting
_SHORT: Final = 65_536  # at worst a third of a second for attributes

_PLAIN_REST: Final = r"""[^<>"']*+(?:"[^"<>]*+"[^<>"']*+|'[^'<>]*+'[^<>"']*+)*+>"""
# Formatting elements that the very next tag does not close; and, as it is quicker, a few that do not exist: <fobr>.
_formats = re.compile(
    r"<([bBiIuUsSeEtTcCfFnN](?:(?<=[bBiIuUsS])|[mM]|[tT]|[iI][gG]|[oO](?:[dD][eE]|[nN][tT]|[bB][rR])|[mM][aA][lL][lL]"
    rf"|[tT][rR](?:[iI][kK][eE]|[oO][nN][gG])))(?=[\s/>])(?!{_PLAIN_REST}[^<]*+</\1>)"
)
_MARKERS: Final = frozenset("applet caption marquee object td th template".split())
"""Within these, an end tag does not reach the formatting elements around them."""
_format_tags = re.compile(
    r"<(/?(?:b|i|u|s|em|tt|big|code|font|nobr|small|strike|strong|applet|caption|marquee|object|t[dh]|template))(?=[\s/>])",
    re.IGNORECASE,
)

_elements = re.compile(r"<(/?[a-zA-Z][^\s/>]*+)")
# Elements that end by themselves, or that others end: they are nested no deeper than those that do not.
_LIGHT: Final = frozenset(
    """
    area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr p li dt dd option
    optgroup tr td th tbody thead tfoot colgroup caption rb rt rp rtc html head body
    """.split()
)

_ATTRIBUTE: Final = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\s>]*+))?+"""
_ORDINARY: Final = r"""<[^<>"']{0,200}+(?:"[^"<>]*+"[^<>"']{0,100}+){0,30}+>[^<]*+"""
_tags_in_order = re.compile(
    rf"(?:{_ORDINARY}|<(?![a-zA-Z])|<[^\s/>]++(?:{_ATTRIBUTE}){{0,{MOST_ATTRIBUTES}}}+[\s/]*+(?:>|\Z)|[^<]++)*+"
)

_scripts = re.compile(r"(?<=<script)[\s>/](?:[^<]++|<(?!/script))*+", re.IGNORECASE)
_leaves = re.compile(
    "<(animate|animateTransform|circle|ellipse|image|line|path|polygon|polyline|rect|stop|use)"
    r"""(?=[\s/])((?:[^<>"'/]++|/(?!>)|"[^"<>]*+"|'[^'<>]*+')*+)/>"""
)


def eased(html: str) -> str:
    """The same for everybody but a program that counts tags: scripts without "<", and drawings with end tags.

    A page that is tangled only until it is eased was not made to do harm, and is parsed as it then is.
    """
    html = _scripts.sub(lambda script: script[0].replace("<", "\\u003c"), html)
    return _leaves.sub(r"<\1\2></\1>", html)


def tangle_of(html: str) -> str:
    """What is wrong with it in a few words, or "" where it can be parsed as it is."""
    tags = html.count("<")
    if tags > _FEW_TAGS:
        most = MOST_COPIES // tags
        if len(_formats.findall(html)) > most and _open_formats(html) > most:
            return "too many formatting elements that are not closed"
    if tags > _MORE_TAGS and _is_deep(html):
        return "nested too deeply"
    if len(html) > _SHORT and _tags_in_order.match(html).end() < len(html):  # type: ignore[union-attr]  # always matches
        return "too many attributes in one tag"
    return ""


def _open_formats(html: str) -> int:
    """At most so many formatting elements are open at once."""
    open_now = most = 0
    names: dict[str, int] = {}
    for tag in _format_tags.findall(html):
        name = tag.lower()
        if name[0] != "/":
            if name in _MARKERS:
                names.clear()
            else:
                names[name] = names.get(name, 0) + 1
                open_now += 1
                most = max(most, open_now)
        elif name[1:] in _MARKERS:
            names.clear()
        elif names.get(name[1:], 0):
            names[name[1:]] -= 1
            open_now -= 1
    return most


def _is_deep(html: str) -> bool:
    """Whether more elements may be within each other than should be.

    An end tag is believed to end an element of its name, if one is open, and no other.
    """
    depth = 0
    names: dict[str, int] = {}
    for tag in _elements.findall(html):
        name = tag.lower()
        if name[0] == "/":
            if names.get(name[1:], 0):
                names[name[1:]] -= 1
                depth -= 1
        elif name not in _LIGHT:
            names[name] = names.get(name, 0) + 1
            depth += 1
            if depth > DEEPEST:
                return True
    return False
