from __future__ import annotations

import pytest

from holdfast.crawl.text import codec_of, decoded

TEXT = "Straße – €5"


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        (TEXT.encode(), ""),
        (TEXT.encode(), "utf-8"),
        (TEXT.encode("cp1252"), ""),
        (TEXT.encode("cp1252"), "latin1"),
        (TEXT.encode("cp1252"), "ISO-8859-1"),
        (TEXT.encode("cp1252"), " Windows-1252 "),
        (TEXT.encode("utf-8-sig"), ""),
        (TEXT.encode("utf-8-sig"), "latin1"),
        (b"\xff\xfe" + TEXT.encode("utf-16-le"), "utf-8"),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), ""),
        (TEXT.encode("utf-16-le"), "utf-16"),
        (TEXT.encode("utf-16-be"), "utf-16be"),
        (TEXT.encode(), "no-such-encoding"),
    ],
)
def test_a_text_is_read_in_the_encoding_of_its_mark_or_header(body: bytes, charset: str) -> None:
    assert decoded(body, charset) == TEXT


@pytest.mark.parametrize(
    ("declared", "codec"),
    [
        ('<meta charset="shift_jis">', "cp932"),
        ("<META CharSet=Shift-JIS >", "cp932"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=EUC-JP">', "euc_jp"),
        ("<html><head><!-- x --><meta charset='x-sjis'/>", "cp932"),
        ('<?xml version="1.0" encoding="iso-2022-jp"?><html>', "iso2022_jp"),
        ('<meta charset="utf-16">', "utf-8"),
        ('<meta charset="nonsense">', "utf-8"),
        ('<meta name="charset" content="x">', "utf-8"),
    ],
)
def test_a_text_is_read_in_the_encoding_that_it_declares_itself(declared: str, codec: str) -> None:
    text = f"{declared}<p>日本語テキスト</p>"
    assert decoded(text.encode(codec), "") == text


def test_a_header_is_believed_before_a_declaration() -> None:
    assert decoded('<meta charset="shift_jis">é'.encode(), "utf-8").endswith("é")


def test_a_declaration_counts_in_the_first_1024_bytes_alone() -> None:
    body = b'<meta charset="windows-1251">\xcf'
    assert decoded(b" " * 990 + body, "").endswith("П")
    assert decoded(b" " * 1_000 + body, "").endswith("Ï")


@pytest.mark.parametrize(("charset", "body"), [("utf-8", b"a\xffb"), ("latin1", b"a\x81b"), ("", b"a\x81b")])
def test_what_cannot_be_decoded_is_replaced(charset: str, body: bytes) -> None:
    assert decoded(body, charset) == "a\ufffdb"


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("gb2312", "gb18030"),
        ("GBK", "gb18030"),
        ("big5", "big5hkscs"),
        ("ks_c_5601-1987", "cp949"),
        ("iso-8859-9", "cp1254"),
        ("tis-620", "cp874"),
        ("koi8-r", "koi8-r"),
        ("windows-1251", "cp1251"),
        ("x-cp1250", "cp1250"),
        ("iso-8859-2", "iso8859-2"),
        ("macintosh", "mac-roman"),
    ],
)
def test_labels_mean_what_they_mean_to_browsers(label: str, codec: str) -> None:
    assert codec_of(label) == codec
    "x".encode(codec_of(label))


@pytest.mark.parametrize(
    "label", ["", "utf-7", "rot13", "hex", "zip", "idna", "unicode_escape", "x" * 1000, "\0", "../x", "ünicode"]
)
def test_codecs_that_are_no_encodings_of_pages_are_never_used(label: str) -> None:
    assert codec_of(label) == ""
    assert decoded(b"+AD4-", label) == "+AD4-"
