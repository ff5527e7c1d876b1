"""What a real Chromium sent, replayed through the middleware by requests that a spider makes.

Beside what the Trail can't replay (see ``test_trail_replay``), some situations are left out here since a crawl can't be
in them; each with its reason.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from scrapy import Request

from tests.support.road import Road, ours, page

from .test_trail_replay import (
    CASES,
    EARLIER_HOPS,
    LEFT_OUT as LEFT_OUT_OF_THE_TRAIL,
    LONG_PAGE,
    MODE_IS_SET,
    NAMED_DESTINATION,
    OURS,
    began_at,
    link_policy,
    page_policy,
)

LEFT_OUT = {
    **LEFT_OUT_OF_THE_TRAIL,
    r"^[km]\.location-(?!href-in-click|timer-after-click)|^n\.location-reload|^j\.form-post-script-submit": (
        "a script navigated by itself; a crawl runs no scripts, and what its spider follows counts as clicked"
    ),
    r"^l\.refresh-header": "Scrapy does not follow the Refresh header",
    r"^h\.click-in-iframe": "a click inside a frame: a crawl has no frames that could hold the next page",
}

if TYPE_CHECKING:
    from scrapy.http import Response


def left_out(case: dict[str, object]) -> bool:
    return any(re.search(pattern, str(case["case"])) for pattern in LEFT_OUT)


REPLAYED = [case for case in CASES if not left_out(case)]


def spiders_request(case: dict[str, object], url: str, sent: dict[str, str]) -> Request:
    """The request that a spider makes for what the browser did."""
    name = str(case["case"])
    meta: dict[str, object] = {}
    if "upgrade-insecure-requests" not in sent:
        meta["navigation"] = False
    if NAMED_DESTINATION.match(name):
        meta["pacing_dest"] = sent.get("sec-fetch-dest", "iframe")
    if link_policy(name) and "meta-referrer" not in name:
        meta["referrer_policy"] = link_policy(name)
    headers = {"Accept": sent.get("accept", "")}
    if MODE_IS_SET.match(name) and "sec-fetch-mode" in sent:
        headers["Sec-Fetch-Mode"] = sent["sec-fetch-mode"]
    method = "POST" if "form-post" in name else str(case["method"])
    return Request(url, method=method, headers=headers, meta=meta, dont_filter=True)


def page_in_view(name: str, url: str) -> Response:
    policy = page_policy(name)
    body = b"<html></html>"
    if "meta-referrer" in name:
        body = f'<html><head><meta name="referrer" content="{link_policy(name)}"></head></html>'.encode()
    elif name.startswith("l."):
        # Its target is filled in by the test.
        body = b"<html><head><meta http-equiv='refresh' content='0; url=%s'></head></html>"
    return page(url, body=body, headers={"Referrer-Policy": policy} if policy else {})


@pytest.mark.parametrize("case", REPLAYED, ids=lambda case: case["case"])
def test_a_crawl_sends_what_chromium_sent(case: dict[str, object]) -> None:
    """A spider that follows what the browser followed sends the browser's Referer and fetch metadata."""
    name, url = str(case["case"]), str(case["request_url"])
    sent: dict[str, str] = dict(case["headers"])  # type: ignore[call-overload]
    road = Road()
    hops: list[object] = EARLIER_HOPS[re.sub(r"^k\.|\.h2$", "", name)] if name.startswith("k.") else []
    urls = [hop if isinstance(hop, str) else hop[0] for hop in hops]  # type: ignore[index]
    policies = ["" if isinstance(hop, str) else hop[1] for hop in hops]  # type: ignore[index]
    request = spiders_request(case, [*urls, url][0], sent)

    at = began_at(case, sent)
    if at:
        shown = page_in_view(name, LONG_PAGE if at == LONG_PAGE else at)
        first = Request(shown.url, meta={"navigation": not at.endswith(".css")})
        road.ask(first)
        if name.startswith("l."):
            request = road.answer(first, shown.replace(body=shown.body % url.encode()))  # type: ignore[assignment]
        else:
            request = road.follow(road.answer(first, shown), request)  # type: ignore[arg-type]
    for target, policy in zip([*urls[1:], url], policies, strict=False):
        road.ask(request)
        status = 307 if "redirect-307" in name else 302
        request = road.redirect(request, target, status=status, headers={"Referrer-Policy": policy} if policy else {})

    assert request.url == url.partition("#")[0]
    assert ours(road.ask(request)) == {header: sent[header] for header in OURS if header in sent}


def test_every_left_out_situation_is_in_the_data() -> None:
    """No reason for leaving something out outlives what it was about, and most cases are replayed."""
    names = [case["case"] for case in CASES]
    for pattern in LEFT_OUT:
        assert any(re.search(pattern, name) for name in names), pattern
    assert len(REPLAYED) > 0.75 * len(CASES)
