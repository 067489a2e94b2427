"""Bytes of a page as text, in the encoding that it says it has, read as browsers read it."""

from __future__ import annotations

import codecs
import re
from typing import Final

_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_LOOKED_AT: Final = 1024
_FALLBACK: Final = "cp1252"

# Labels that mean something else to browsers than to Python, or that Python does not know.
_MEANT: Final = {
    **dict.fromkeys(
        "ascii us-ascii ansi_x3.4-1968 latin1 latin-1 l1 iso-8859-1 iso8859-1 iso_8859-1 iso88591 cp819 ibm819"
        " windows-1252 x-cp1252 cp1252".split(),
        "cp1252",
    ),
    **dict.fromkeys("iso-8859-9 iso8859-9 iso_8859-9 latin5 l5 windows-1254 x-cp1254".split(), "cp1254"),
    **dict.fromkeys("tis-620 iso-8859-11 iso8859-11 dos-874 windows-874".split(), "cp874"),
    **dict.fromkeys("gb2312 gb_2312-80 gbk x-gbk chinese csgb2312 iso-ir-58 gb18030".split(), "gb18030"),
    **dict.fromkeys("shift_jis shift-jis sjis x-sjis ms_kanji windows-31j ms932 csshiftjis".split(), "cp932"),
    **dict.fromkeys("euc-kr euckr ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 korean windows-949".split(), "cp949"),
    **dict.fromkeys("big5 big5-hkscs cn-big5 x-x-big5 csbig5".split(), "big5hkscs"),
    **dict.fromkeys("iso-8859-8-i logical csiso88598i".split(), "iso8859-8"),
    **dict.fromkeys("macintosh mac x-mac-roman csmacintosh".split(), "mac-roman"),
    **dict.fromkeys("x-mac-cyrillic x-mac-ukrainian".split(), "mac-cyrillic"),
    **dict.fromkeys("utf8 utf-8 unicode-1-1-utf-8 x-unicode20utf8".split(), "utf-8"),
    **dict.fromkeys("utf-16 utf-16le unicode ucs-2 iso-10646-ucs-2 csunicode".split(), "utf-16-le"),
    "utf-16be": "utf-16-be",
    "x-user-defined": "cp1252",
}
# Codecs that browsers know under the same names; anything else that Python has (utf-7, rot13, idna …) is no encoding.
_ALIKE: Final = re.compile(
    r"iso-?8859-(?:[2-8]|1[03-6])|(?:windows-|x-cp|cp)125[013-8]|koi8-?[ru]|euc-jp|iso-2022-jp|ibm866|cp866"
)
_DECLARED: Final = re.compile(
    rb"""<meta\s[^>]{0,500}?charset\s*=\s*["']?\s*([a-z0-9_.:+\-]{2,40})"""
    rb"""|^\s*<\?xml\s[^>]{0,200}?encoding\s*=\s*["']([a-z0-9_.:+\-]{2,40})""",
    re.IGNORECASE,
)


def decoded(body: bytes, charset: str) -> str:
    """The text of a body; what cannot be decoded is replaced, and a byte order mark is left out.

    The encoding is that of a byte order mark, of the Content-Type header (`charset`), of <meta charset> in the first
    1,024 bytes; else UTF-8, and windows-1252 where it is not that. A label that nobody knows counts as none.
    """
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return str(memoryview(body)[len(mark) :], codec, "replace")
    named = codec_of(charset) or _declared(body)
    if named:
        return str(body, named, "replace")
    try:
        return str(body, "utf-8")
    except UnicodeDecodeError:
        return str(body, _FALLBACK, "replace")


def codec_of(label: str) -> str:
    """Python's codec for a label of an encoding, as browsers understand it; "" where it is none."""
    name = label.strip().lower()
    if found := _MEANT.get(name):
        return found
    if not _ALIKE.fullmatch(name):
        return ""
    return codecs.lookup(name.replace("windows-", "cp").replace("x-cp", "cp")).name


def _declared(body: bytes) -> str:
    found = _DECLARED.search(body, 0, _LOOKED_AT)
    if found is None:
        return ""
    named = codec_of((found[1] or found[2]).decode("ascii"))
    # The label was read as ASCII, so the bytes are not of two each, whatever it says.
    return "utf-8" if named.startswith("utf-16") else named
