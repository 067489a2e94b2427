"""What looks like a secret is left out of text, and the rest stays as it is."""

from __future__ import annotations

from time import process_time

import pytest

from holdfast.redact import redacted_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://shop:hunter2@db/x refused", "postgresql://shop:[redacted]@db/x refused"),
        ("redis://:p@ss/w@host", "redis://:[redacted]@host"),
        ("password=hunter2, user=ada", "password=[redacted], user=ada"),
        ("api_key := hunter2", "api_key := [redacted]"),
        ('{"api_key": "hun\\"ter2", "n": 1}', '{"api_key": "[redacted]", "n": 1}'),
        ("{'password': 'hun ter2', 'a': 1}", "{'password': '[redacted]', 'a': 1}"),
        (r"{\"password\": \"hunter2\"}", r"{\"password\": \"[redacted]\"}"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: [redacted]"),
        ("got Bearer hunter2hunter2 from you", "got Bearer [redacted] from you"),
        ("https://a.example/c?token=hunter2&x=1", "https://a.example/c?token=[redacted]&x=1"),
        ("x eyJhbGciOi.eyJzdWIi.sig y", "x [redacted] y"),
        ("hf_ops_0123456789abcdefXYZ", "[redacted]"),
        ("key AKIAABCDEFGHIJKLMNOP.", "key [redacted]."),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIhunter2\n-----END RSA PRIVATE KEY-----", "[redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIhunter2", "[redacted]"),
        # with prefixes, calls and brackets
        ("{'password': b'hunter2', 'n': 1}", "{'password': [redacted], 'n': 1}"),
        ("password = f'hunter2' x", "password = [redacted] x"),
        ("Login(token=SecretStr('hunter2'), n=1)", "Login(token=[redacted], n=1)"),
        ("{'secret': ['hunter2', (\"hun)ter2\", 3)], 'n': 1}", "{'secret': [redacted], 'n': 1}"),
        ("password={'a': 'hunter2'} x", "password=[redacted] x"),
        ("password=(it's hunter2) x", "password=[redacted] x"),
        ("password=[hunter2, 'hunter2'", "password=[redacted]"),
        ('password="it\'s hunter2" x', 'password="[redacted]" x'),
        ("password='''hunter2''' x", "password='''[redacted]''' x"),
        ("password='hunter2", "password=[redacted]"),
        ("password='" + "hunter2 " * 1000 + "' x", "password='[redacted]' x"),
        # up to the end of the value
        ("password=hun,ter2 x", "password=[redacted] x"),
        ("password=hun'ter2 x", "password=[redacted] x"),
        ("'password=hunter2', 'n'", "'password=[redacted]', 'n'"),
        ("password=ghp_0123456789abcdefghij!hunter2 x", "password=[redacted] x"),
        ("password: str = 'hunter2'", "password: [redacted] = '[redacted]'"),
        ("if token == 'hunter2':", "if token == '[redacted]':"),
        ("password: |\n  hunter2\nuser: ada", "password: [redacted]\nuser: ada"),
        ("<password>hunter2</password>", "<password>[redacted]</password>"),
        # headers
        ("Authorization: Token hunter2\nHost: a", "Authorization: [redacted]\nHost: a"),
        ('Authorization: Digest username="x", response="hunter2"\nA: b', "Authorization: [redacted]\nA: b"),
        ("Set-Cookie: a=b; session=hunter2; Path=/", "Set-Cookie: [redacted]"),
        ("X-Api-Key: hunter2", "X-Api-Key: [redacted]"),
        # command lines, pairs, settings
        ("mysql --password hunter2 --user x", "mysql --password [redacted] --user x"),
        ("['--password', 'hunter2', 'x']", "['--password', '[redacted]', 'x']"),
        ("('password', 'hunter2')", "('password', '[redacted]')"),
        ('[["X-Api-Key","hunter2"]]', '[["X-Api-Key","[redacted]"]]'),
        ('{"name": "DB_PASSWORD", "value": "hunter2"}', '{"name": "DB_PASSWORD", "value": "[redacted]"}'),
        # logins
        ("https://hunter2@git.example/x", "https://[redacted]@git.example/x"),
        ("redis://hunter2@h:6379/0", "redis://[redacted]@h:6379/0"),
        ("postgres://u:hun'ter2@h/db", "postgres://u:[redacted]@h/db"),
        ("'postgres://u:hunter2@h/db', 'a@b.example'", "'postgres://u:[redacted]@h/db', 'a@b.example'"),
        ("postgres://u:" + "hunter2" * 200 + "@h", "postgres://u:[redacted]@h"),
        # by name and by shape
        ("AccountName=x;AccountKey=hunter2==;a=b", "AccountName=x;AccountKey=[redacted];a=b"),
        ("https://x.example/?sv=1&sig=hunter2&x=1", "https://x.example/?sv=1&sig=[redacted]&x=1"),
        ("DB_PASS=hunter2 passPhrase=hunter2 pw: hunter2", "DB_PASS=[redacted] passPhrase=[redacted] pw: [redacted]"),
        ("key sk_live_hunter2hunter2 x", "key [redacted] x"),
        ("key ghp_hunter2hunter2hunter2 x", "key [redacted] x"),
        ("xoxb-123456789012-hunter2", "[redacted]"),
    ],
)
def test_a_secret_is_left_out(text: str, shown: str) -> None:
    assert redacted_text(text) == shown
    assert redacted_text(shown) == shown, "nothing is left to be done a second time"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KeyError: 'password'",
        "token=None password='' secret=null",
        "connect to 10.0.0.1:80 failed",
        "https://a.example/c?page=1",
        "basic functionality is missing",
        "order_id=7, author: Ada",
        "max_tokens=100 tokens: 5, keyboard=x",
        "compass: north, signal=9, monkey: see",
        "ssh://git@github.example/x.git",
        "https://a.example/x?to=a@b.example",
        "missing fields: ['name', 'password', 'email']",
        "the password is wrong",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert redacted_text(text) == text


@pytest.mark.timeout(10)
@pytest.mark.parametrize("piece", ["a", "eyJ-", "://a:", "eyJaaaaaa.", "-----BEGIN ", "hf_a-", "aA", '\\"'])
def test_a_megabyte_of_hostile_text_takes_an_instant(piece: str) -> None:
    assert cpu_s_of(piece * (1_000_000 // len(piece))) < 0.25  # a fifth of that; some would take minutes


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "piece",
    [
        "password=",
        "password='",
        'password="\\"',
        "password=(",
        "password=[\"'",
        'authorization="',
        "bearer ",
        "key ",
        "--password ",
        '("password",',
        "://a@",
        "://a:@ ",
        "://a:b'",
        "x password = a",
        "<password>",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_hostile_text_takes_time_in_proportion_to_its_length(piece: str) -> None:
    short, long = (cpu_s_of(piece * (size // len(piece)) + "@") for size in (20_000, 160_000))
    assert long < 24 * short + 0.05  # eight times as long; the square would be 64 times


def cpu_s_of(text: str) -> float:
    """The least of two looks, as others are at work."""
    spent = []
    for _ in range(2):
        began = process_time()
        redacted_text(text)
        spent.append(process_time() - began)
    return min(spent)
