"""HTML that would keep the parser busy for minutes, or make it take gigabytes, is told before it is parsed.

Of a page that is made for it, parsing takes the product of two things: of its tags and how deeply they are nested; of
the attributes of one tag and themselves; of the formatting elements that are never closed (<b>, <font> …) and the
paragraphs after these, each of which gets its own copy of them all. Small pages cannot do harm and are not looked at.
What is found of larger ones is an upper bound, quick to have, and the limits are far above what ordinary pages have.
"""

from __future__ import annotations

import re
from typing import Final

MOST_TAGS: Final = 2_000_000
"""Of a page. So many take seconds and half a gigabyte, whatever they are."""
DEEPEST: Final = 1_000
"""Elements within each other. Browsers stop at 512."""
MOST_ATTRIBUTES: Final = 2_000
"""Of one tag."""
MOST_COPIES: Final = 1_000_000
"""Formatting elements that are open at once, times the tags of the page; an element takes about 400 bytes."""

_FEW_TAGS: Final = 1_500  # at worst 500,000 elements
_MORE_TAGS: Final = 30_000  # at worst a second or so for nesting
_SHORT: Final = 65_536  # at worst a third of a second for attributes

_PLAIN_REST: Final = r"""[^<>"']*+(?:"[^"<>]*+"[^<>"']*+|'[^'<>]*+'[^<>"']*+)*+>"""
# Formatting elements that the very next tag does not close; and, as it is quicker, a few that do not exist: <fobr>.
_formats = re.compile(
    r"<([bBiIuUsSeEtTcCfFnN](?:(?<=[bBiIuUsS])|[mM]|[tT]|[iI][gG]|[oO](?:[dD][eE]|[nN][tT]|[bB][rR])|[mM][aA][lL][lL]"
    rf"|[tT][rR](?:[iI][kK][eE]|[oO][nN][gG])))(?=[\s/>])(?!{_PLAIN_REST}[^<]*+</\1>)"
)
# Comments, elements whose content is text, and tags, each with all that a parser may take for a part of it.
_TAG_REST: Final = r"""(?:[^>"'=]++|=\s*+(?:"[^"]*+"?+|'[^']*+'?+)?+|["'])*+>?+"""
_tokens = re.compile(
    rf"""<(?:!--(?:[^-]++|-(?!->))*+|!\[CDATA\[(?:[^\]]++|\](?!\]>))*+|[!?][^>]*+
    |(script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>]){_TAG_REST}(?:[^<]++|<(?!/\1[\s/>]))*+
    |(/?[a-z][^\s/>]*+){_TAG_REST})""".replace("\n    ", ""),
    re.IGNORECASE,
)
_FORMATS: Final = frozenset("b i u s em tt big code font nobr small strike strong".split())
# Elements that end tags of those around them do not reach through.
_BOUNDS: Final = frozenset("applet button foreignobject marquee math object select svg table template".split())
_SEALS: Final = _BOUNDS | {"caption", "td", "th"}
# Elements that end tags do not reach through unless they are of this kind themselves.
_SPECIAL: Final = _BOUNDS | frozenset(
    """
    address annotation-xml article aside blockquote center desc details dialog dir div dl fieldset figcaption figure
    footer form frameset h1 h2 h3 h4 h5 h6 header hgroup iframe listing main menu mi mn mo ms mtext nav noembed noframes
    noscript ol plaintext pre script search section style summary textarea title ul xmp
    """.split()
)
# Elements that end by themselves, or that others end: they are nested no deeper than those that do not.
_LIGHT: Final = frozenset(
    """
    area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr p li dt dd option
    optgroup tr td th tbody thead tfoot colgroup caption rb rt rp rtc html head body
    """.split()
)
_FOREIGN: Final = frozenset({"annotation-xml", "desc", "foreignobject", "math", "mi", "mn", "mo", "ms", "mtext", "svg"})
_FAR: Final = 50  # so far an end tag is looked after

_ATTRIBUTE: Final = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\s>]*+))?+"""
_ORDINARY: Final = r"""<[^<>"']{0,200}+(?:"[^"<>]*+"[^<>"']{0,100}+){0,30}+>[^<]*+"""
_tags_in_order = re.compile(
    rf"(?:{_ORDINARY}|<(?![a-zA-Z])|<[^\s/>]++(?:{_ATTRIBUTE}){{0,{MOST_ATTRIBUTES}}}+[\s/]*+(?:>|\Z)|[^<]++)*+"
)

_leaves = re.compile(
    "<(animate|animateTransform|circle|ellipse|image|line|path|polygon|polyline|rect|stop|use)"
    r"""(?=[\s/])((?:[^<>"'/]++|/(?!>)|"[^"<>]*+"|'[^'<>]*+')*+)/>"""
)


def eased(html: str) -> str:
    """The same to whoever reads it: "<" that begins no tag is written as an escape, and drawings have end tags.

    A page that is tangled only until it is eased was not made to do harm, and is parsed as it then is.
    """
    return _leaves.sub(r"<\1\2></\1>", _tokens.sub(_escaped, html))


def _escaped(token: re.Match[str]) -> str:
    is_script = (token[1] or "").lower() == "script"
    return "<" + token[0][1:].replace("<", "\\u003c" if is_script else "&lt;")


def tangle_of(html: str) -> str:
    """What is wrong with it in a few words, or "" where it can be parsed as it is."""
    tags = html.count("<")
    if tags > MOST_TAGS:
        return "too many tags"
    if tags > _FEW_TAGS:
        most = MOST_COPIES // tags
        if len(_formats.findall(html)) > most and _has_open_formats(html, most):
            return "too many formatting elements that are not closed"
    if tags > _MORE_TAGS and _is_deep(html):
        return "nested too deeply"
    if len(html) > _SHORT and _tags_in_order.match(html).end() < len(html):  # type: ignore[union-attr]  # always matches
        return "too many attributes in one tag"
    return ""


def _has_open_formats(html: str, most: int) -> bool:
    """Whether more formatting elements than `most` may be open at once.

    Those that are open where a table or the like begins or ends count as open for ever.
    """
    open_now = 0
    names: dict[str, int] = {}
    for token in _tokens.finditer(html):
        name = (token[1] or token[2] or "").lower()
        open_now += token[0].count("<") - 1
        if name in _FORMATS:
            names[name] = names.get(name, 0) + 1
            open_now += 1
        elif name[1:] in _FORMATS and names.get(name[1:], 0):
            names[name[1:]] -= 1
            open_now -= 1
        elif name.lstrip("/") in _SEALS:
            names.clear()
        if open_now > most:
            return True
    return False


def _is_deep(html: str) -> bool:
    """Whether more elements may be within each other than should be."""
    hidden, stack = 0, list[str]()
    for token in _tokens.finditer(html):
        name = (token[1] or token[2] or "").lower()
        hidden += token[0].count("<") - 1
        if name.startswith("/"):
            _close(stack, name[1:])
        elif name and name not in _LIGHT:
            stack.append(name)
        if len(stack) + hidden > DEEPEST:
            return True
    return False


def _close(stack: list[str], name: str) -> None:
    """End the innermost element of this name and all within it, if the end tag reaches that far."""
    is_special = name in _SPECIAL and name not in _FOREIGN
    for at in range(len(stack) - 1, max(len(stack) - _FAR, 0) - 1, -1):
        if stack[at] == name:
            del stack[at : at + 1 if name == "form" else None]  # a form alone leaves those within it open
            return
        if stack[at] in _BOUNDS or (not is_special and stack[at] in _SPECIAL):
            return
