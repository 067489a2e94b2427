"""What a site's robots.txt asks of us (RFC 9309); how to read it is protego's.

A group is ours if its name is our product token ("Holdfast" of the agent "Holdfast/0.1 (+https://…)"), whatever the
case and whatever follows the token. Where there is none, the group `*` is.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from holdfast.crawl.extras import wanted

if TYPE_CHECKING:
    from protego import Protego, RequestRate

LONGEST: Final = 500 * 1024
"""So many bytes of the file are read, as Google does; the rest is not looked at."""
LONGEST_DELAY_S: Final = 300.0
"""No crawl-delay is longer: one of a day means that a crawl never ends."""
FRESH_S: Final = 86_400.0
"""For so long an answer holds."""
UNKNOWN_S: Final = 5.0
"""So long after it could not be had, robots.txt is asked for again."""

_OURS: Final = "ours"  # the names of groups as protego sees them: ours, * and those of others
_OTHERS: Final = "theirs"
_group_line = re.compile(r"\s*user[ -]?agent(?:\s*:\s*|\s+)([^#]*)", re.IGNORECASE).match
_token = re.compile(r"[A-Za-z0-9_.-]+").match
_compatible = re.compile(r"Mozilla/\S+ \((?:[^()]*; ?)?compatible; ?([A-Za-z0-9_.-]+)", re.IGNORECASE).match


class Robots(Struct, frozen=True, kw_only=True, eq=False):
    """What may be fetched of one domain, and how often.

    `is_unknown`: robots.txt could not be had, so nothing may be fetched for now; `why` says what was wrong.
    `again_s`: when to ask for it again.
    `crawl_delay_s`: the wait between two pages that the site asks for.
    """

    is_unknown: bool = False
    again_s: float = FRESH_S
    why: str = ""
    crawl_delay_s: float | None = None
    _rules: Protego | None = None

    @classmethod
    def parse(cls, text: str, agent: str) -> Robots:
        """Reads any text, however broken or hostile."""
        with wanted():
            from protego import Protego  # noqa: PLC0415 - of the extra
        rules = Protego.parse(_for_us(text, product_token(agent)))
        return cls(
            crawl_delay_s=_delay_s(rules.crawl_delay(_OURS), rules.request_rate(_OURS)),
            _rules=rules,
        )

    def allows(self, url: str) -> bool:
        """Whether a canonical URL of the domain may be fetched now."""
        if self._rules is None:
            return not self.is_unknown
        return self._rules.can_fetch(url, _OURS)


ALLOW_ALL: Final = Robots()
UNKNOWN: Final = Robots(is_unknown=True, again_s=UNKNOWN_S)


def meaning_of(status: int | None, body: bytes, agent: str) -> Robots:
    """What an answer to the request for robots.txt means; status None: there was no answer.

    No such file (4xx, or a redirect that leads nowhere) allows everything; a site that is overloaded or in trouble
    (429, 5xx, None) has not said yet what it allows.
    """
    if status is None or status < 200 or status == 429 or status >= 500:
        return UNKNOWN
    return Robots.parse(_text(body), agent) if status < 300 else ALLOW_ALL


def product_token(agent: str) -> str:
    """The name that groups of robots.txt know an agent by.

    It is "Shopbot" of "Shopbot/2.0 (+https://…)", and of "Mozilla/5.0 (compatible; Shopbot/2.0)".
    """
    agent = agent.strip()
    found = _compatible(agent)
    if found:
        return found[1]
    found = _token(agent)
    return found[0] if found else ""


def _text(body: bytes) -> str:
    if len(body) > LONGEST:
        end = max(body.rfind(b"\n", 0, LONGEST), body.rfind(b"\r", 0, LONGEST))
        body = body[: end + 1]  # half a rule would forbid more than the whole one
    return body.decode("utf-8", "replace")


def _for_us(text: str, token: str) -> str:
    """The text with the names of groups replaced.

    Protego takes the group `Hold` for that of Holdfast, and does not take that of `Holdfast/0.1` for it.
    """
    text = text.removeprefix("\ufeff")
    if not text.isascii():
        # Protego cannot encode lone surrogates.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    name = token.lower()
    lines = text.splitlines()
    for at, line in enumerate(lines):
        found = _group_line(line)
        if found and (group := found[1].strip()):
            if group != "*":
                known = _token(group)
                group = _OURS if known and known[0].lower() == name else _OTHERS
            lines[at] = f"User-agent: {group}"
    return "\n".join(lines)


def _delay_s(delay_s: float | None, rate: RequestRate | None) -> float | None:
    # Not every version of protego leaves out what is negative, infinite or no number.
    waits = [min(delay_s, LONGEST_DELAY_S)] if delay_s is not None and 0.0 <= delay_s < math.inf else []
    if rate is not None and rate.requests > 0 and rate.seconds > 0:
        # Whole numbers of any size, so they are compared before they are divided.
        is_longest = rate.seconds >= int(LONGEST_DELAY_S) * rate.requests
        waits.append(LONGEST_DELAY_S if is_longest else rate.seconds / rate.requests)
    return max(waits, default=None)
