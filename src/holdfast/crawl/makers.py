"""How the pages of known makers of challenges are built, as far as it tells them from all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct


class Told(Struct, frozen=True):
    """What the values of a header say."""

    by: str
    kinds: Mapping[str, Literal["challenge", "captcha"]]


class Maker(Struct, frozen=True):
    """What is in a maker's page: an element that the selector matches and, if one is named, a script with this name."""

    by: str
    kind: Literal["challenge", "captcha"]
    selector: str
    script: str = ""
    most_text: int = 2_000
    """So many characters that can be read are on the page at most."""


HEADERS: Final[Mapping[str, Told]] = {
    "cf-mitigated": Told("Cloudflare", {"challenge": "challenge"}),
    "x-amzn-waf-action": Told("AWS WAF", {"challenge": "challenge", "captcha": "captcha"}),
    "x-vercel-mitigated": Told("Vercel", {"challenge": "challenge"}),
}
"""Headers that a site sends with such pages only."""

# Sensors of some makers are in the ordinary pages of their customers too, so these are about what only a challenge has.
MAKERS: Final = (
    Maker("Cloudflare", "challenge", '#challenge-form, #cf-challenge-running, form[action*="__cf_chl"]'),
    Maker("Cloudflare", "challenge", "script", "_cf_chl_opt"),
    Maker("DataDome", "captcha", '[src*="captcha-delivery.com"]'),
    Maker("DataDome", "captcha", "script", "captcha-delivery.com"),
    Maker("HUMAN", "captcha", "#px-captcha"),
    Maker("Imperva", "challenge", 'iframe[src*="/_Incapsula_Resource"]'),
    Maker("Imperva", "challenge", 'script[src*="/_Incapsula_Resource"]', most_text=0),
    Maker("Akamai", "challenge", '#sec-if-cpt-container, #sec-cpt-if, script[src*="/_sec/cp_challenge/"]'),
    Maker("Akamai", "challenge", 'meta[http-equiv="refresh" i][content*="bm-verify="]'),
    Maker("AWS WAF", "captcha", "#captcha-container", "AwsWafCaptcha"),
    Maker("AWS WAF", "challenge", "#challenge-container", "AwsWafIntegration"),
    Maker("Kasada", "challenge", 'script[src*="/149e9513-01fa-4fb0-aad4-566afd725d1b/"][src*="/ips.js"]'),
    Maker("DDoS-Guard", "challenge", 'script[src*="/.well-known/ddos-guard/js-challenge"]'),
    Maker("Sucuri", "challenge", "script", "sucuri_cloudproxy_js"),
    Maker("Anubis", "challenge", "script#anubis_challenge"),
    Maker("Amazon", "captcha", 'form[action*="/validateCaptcha"]'),
    Maker("Google", "captcha", 'form#captcha-form[action="index"]'),
)
