"""What a real Chromium sent, replayed through the Trail and compared header by header.

``tests/data/browser-headers.json`` holds the captured requests. The Trail answers for six of their headers; the
others (Accept, Origin, Cache-Control, conditional headers, ...) are not its business.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scrapy_pacing.core.fetch_metadata import mode_of
from scrapy_pacing.core.trail import TYPED, Trail

CASES = json.loads((Path(__file__).parent.parent / "data" / "browser-headers.json").read_text())["cases"]
OURS = (
    "referer",
    "sec-fetch-site",
    "sec-fetch-mode",
    "sec-fetch-user",
    "sec-fetch-dest",
    "upgrade-insecure-requests",
)

# The situations that a crawler can't be in, each with its reason. A pattern that matches no case fails a test below.
LEFT_OUT = {
    r"^n\.reload-(?!subresource)|^n\.hard-reload-after|-3-reload\.|-7-hard-reload\.": (
        "the reload key repeats the headers of the visit before; a crawler has no reload key, it asks anew"
    ),
    r"^o\.(back|forward|history)": "back and forward buttons: a crawler keeps no history to step through",
    r"^[ag]\.https-upgrade": "the browser itself turned http:// into https://; a crawler asks for what it was told to",
    r"speculationrules": "prefetch and prerender ahead of a click: a crawler fetches a page when it wants it",
    r"preflight": "a CORS preflight: a crawler is not bound by CORS and sends none",
    r"^i\.websocket": "a WebSocket handshake is no HTTP request of a crawl",
    r"^i\.a-ping": "a ping that tells on a click: nothing for a crawler to fetch",
    r"^h\.(css-background-image|font)\.(https|http|localhost)->(?!same-origin)": (
        "loaded by a stylesheet of another site: judged by the page, but naming the stylesheet; a crawler's Referer "
        "is the page that it judges by"
    ),
    r"^h\.mixed-content-(script|iframe)|^n\.reload-subresource-fresh|-maxage3600-2-|^p\.etag-lm-none-2-": (
        "the browser made no request (mixed content, or fresh in its cache)"
    ),
}

# Where the markup or the script's options pick a mode that the destination doesn't tell: a user sets Sec-Fetch-Mode
# on the request (which wins), and all the rest is compared.
MODE_IS_SET = re.compile(
    r"^h\.(img-crossorigin|script-module|script-crossorigin|modulepreload|prefetch)\."
    r"|^i\.(fetch-get-no-cors|beacon-text)\."
)
# Destinations that neither the path nor Accept can tell; everything else is told from them.
NAMED_DESTINATION = re.compile(r"^h\.(iframe|click-in-iframe)|^i\.(worker|serviceworker)\.")
# Navigations that no click or key began.
WITHOUT_GESTURE = re.compile(
    r"^l\.|^m\.location-href\.|^m\.location-timer-6s|^n\.location-reload|^j\.form-post-script-submit"
    r"|^k\.location-redirect"
)

SITE, CDN, OTHER = "https://site.example/r", "https://cdn.site.example/r", "https://other.example2/r"
# The earlier hops of each captured chain, by the middle of the case's name (so: same-origin, ss: same-site,
# xs: cross-site); a pair is a hop that answered with a Referrer-Policy.
EARLIER_HOPS: dict[str, list[object]] = {
    "click-redirect-so-so.https.hop2of2": [SITE],
    "click-redirect-so-xs.https.hop2of2": [SITE],
    "click-redirect-so-ss.https.hop2of2": [SITE],
    "click-redirect-so-xs-so.https.hop2of3": [SITE],
    "click-redirect-so-xs-so.https.hop3of3": [SITE, OTHER],
    "click-redirect-so-xs-ss.https.hop3of3": [SITE, OTHER],
    "click-redirect-so-ss-so.https.hop3of3": [SITE, CDN],
    "click-redirect-xs-so.https.hop2of2": [OTHER],
    "typed-redirect-so-xs-so.https.hop2of3": [SITE],
    "typed-redirect-so-xs-so.https.hop3of3": [SITE, OTHER],
    "location-redirect-so-xs-so.https.hop3of3": [SITE, OTHER],
    "img-redirect-so-xs-so.https.hop2of3": [SITE],
    "img-redirect-so-xs-so.https.hop3of3": [SITE, OTHER],
    "fetch-redirect-so-xs-so.https.hop2of3": [SITE],
    "fetch-redirect-so-xs-so.https.hop3of3": [SITE, OTHER],
    "click-redirect-so-xs-so.http.hop3of3": ["http://a.test/r", "http://b.test/r"],
    "click-redirect-so-xs-so.localhost.hop3of3": ["http://localhost/r", SITE],
    "form-post-redirect-302-so-so.https.hop2of2": [SITE],
    "form-post-redirect-302-so-xs.https.hop2of2": [SITE],
    "form-post-redirect-307-so-so.https.hop2of2": [SITE],
    "form-post-redirect-307-so-xs-so.https.hop3of3": [SITE, OTHER],
    "typed-redirect-http-to-https.http.hop2of2": ["http://site.example/r"],
    "typed-redirect-http-to-https-www.http.hop3of3": ["http://site.example/r", SITE],
    "click-redirect-http-to-https.https.hop2of2": ["http://site.example/r"],
    "click-redirect-http-to-https.http.hop2of2": ["http://site.example/r"],
    "click-redirect-https-to-http-to-https.https.hop2of3": [SITE],
    "click-redirect-https-to-http-to-https.https.hop3of3": [SITE, "http://a.test/r"],
    "click-redirect-so-xs-policy-no-referrer-on-redirect.https.hop2of2": [(SITE, "no-referrer")],
    "click-redirect-so-so-policy-origin-on-redirect.https.hop2of2": [(SITE, "origin")],
    "click-redirect-so-xs-policy-unsafe-url-on-redirect.https.hop2of2": [(SITE, "unsafe-url")],
}
LONG_PAGE = "https://site.example/longref/page?q=" + "x" * 4200


def left_out(case: dict[str, object]) -> str | None:
    name = str(case["case"])
    return next((reason for pattern, reason in LEFT_OUT.items() if re.search(pattern, name)), None)


REPLAYED = [case for case in CASES if left_out(case) is None]


def page_policy(name: str) -> str:
    """The Referrer-Policy of the page in view, as the case's name tells it."""
    found = re.match(r"[fg]\.(?:click|img)-policy-([a-z-]+)\.|j\.form-post-policy-([a-z-]+)\.", name)
    return (found[1] or found[2]) if found else ""


def link_policy(name: str) -> str:
    """What the link's own attribute says (rel=noreferrer, referrerpolicy=)."""
    if "noreferrer" in name or "meta-referrer-no-referrer" in name:
        return "no-referrer"
    return "unsafe-url" if "attr-unsafe-url" in name else ""


def began_at(case: dict[str, object], sent: dict[str, str]) -> str:
    name, url = str(case["case"]), str(case["initiator_url"])
    if re.match(r"[akn]\.typed", name):
        return TYPED.url
    if name.startswith("h.referer-over-4096"):
        return LONG_PAGE
    if re.match(r"h\.(css-background-image|font)\.", name):
        # The document that holds the link to it is the stylesheet.
        return sent["referer"]
    return url


@pytest.mark.parametrize("case", REPLAYED, ids=lambda case: case["case"])
def test_the_trail_sends_what_chromium_sent(case: dict[str, object]) -> None:
    """A crawler in a browser's situation sends the browser's Referer and fetch metadata, no more and no less."""
    name = str(case["case"])
    sent: dict[str, str] = dict(case["headers"])  # type: ignore[call-overload]
    expected = {header: sent[header] for header in OURS if header in sent}
    navigates = "upgrade-insecure-requests" in sent
    page = began_at(case, sent)
    dest = None
    if NAMED_DESTINATION.match(name):
        dest = sent.get("sec-fetch-dest", "iframe")

    trail = Trail()
    if page:
        trail.page(page, referrer_policy=page_policy(name))
    got = trail.headers_for(
        str(case["request_url"]),
        method=str(case["method"]),
        navigation=navigates,
        dest=dest,
        accept=sent.get("accept", "").encode(),
        initiator=page,
        referrer_policy=link_policy(name),
        redirects=EARLIER_HOPS[re.sub(r"^k\.|\.h2$", "", name)] if name.startswith("k.") else (),  # type: ignore[arg-type]
        user=False if WITHOUT_GESTURE.match(name) else (True if "click-in-iframe" in name else None),
    )

    got = {header.lower(): value for header, value in got.items()}
    if MODE_IS_SET.match(name):
        # The user's mode differs from what we would have sent, or the case would not need one.
        assert got.pop("sec-fetch-mode", None) != expected.pop("sec-fetch-mode", "")
    assert got == expected


@pytest.mark.parametrize("case", REPLAYED, ids=lambda case: case["case"])
def test_the_headers_come_in_chromiums_order(case: dict[str, object]) -> None:
    """Among themselves the Trail's headers stand as a browser writes them."""
    sent: dict[str, str] = dict(case["headers"])  # type: ignore[call-overload]
    trail = Trail()
    got = trail.headers_for(
        str(case["request_url"]),
        dest=sent.get("sec-fetch-dest"),
        initiator=str(case["initiator_url"]),
    )
    order = [header.lower() for header in case["header_order"]]  # type: ignore[attr-defined]
    ours = [header.lower() for header in got if header.lower() in order]
    assert ours == [header for header in order if header in ours]


def test_every_left_out_situation_is_in_the_data() -> None:
    """No reason for leaving something out outlives what it was about, and most cases are replayed."""
    names = [case["case"] for case in CASES]
    for pattern in LEFT_OUT:
        assert any(re.search(pattern, name) for name in names), pattern
    unsent = [case["case"] for case in CASES if case.get("sent") is False and not left_out(case)]
    assert unsent == []
    assert len(REPLAYED) > 0.8 * len(CASES)


def test_modes_follow_from_the_destination_as_in_the_data() -> None:
    """The mode of each captured destination is the one that we hold for it."""
    seen = set()
    for case in REPLAYED:
        sent = dict(case["headers"])
        if "sec-fetch-dest" in sent and not MODE_IS_SET.match(case["case"]):
            seen.add(sent["sec-fetch-dest"])
            assert mode_of(sent["sec-fetch-dest"]) == sent["sec-fetch-mode"], case["case"]
    assert seen >= {"document", "image", "style", "script", "font", "video", "audio", "iframe", "empty"}
