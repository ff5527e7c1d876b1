"""Where a crawl's requests say they come from, on the road through Scrapy's own middlewares."""

from __future__ import annotations

import gzip
import marshal
import pickle

import pytest
from hypothesis import given, strategies as st
from scrapy import FormRequest, Request
from scrapy.http import JsonRequest, Response
from scrapy.http.request import NO_CALLBACK

from scrapy_pacing import PacingPolicy, SharedState
from tests.support.road import Road, ours, page, run

SHOP, WWW, OTHER = "https://shop.example", "https://www.shop.example", "https://other.example2"
TYPED = {
    "upgrade-insecure-requests": "1",
    "sec-fetch-site": "none",
    "sec-fetch-mode": "navigate",
    "sec-fetch-user": "?1",
    "sec-fetch-dest": "document",
}


def site_and_referer(headers):
    return headers.get("sec-fetch-site"), headers.get("referer")


# -- the page in view -------------------------------------------------------------------------------------------------


def test_a_start_request_was_typed_and_the_next_comes_from_the_page_in_view():
    """The first request of an origin has no Referer; the next one names the page that was got, without fragment."""
    road = Road()
    assert ours(road.ask(Request(f"{SHOP}/first"))) == TYPED
    road.visit(f"{SHOP}/list?page=2#top")
    sent = road.ask(Request(f"{SHOP}/item"))
    assert site_and_referer(sent) == ("same-origin", f"{SHOP}/list?page=2")
    assert site_and_referer(road.ask(Request(f"{OTHER}/item"))) == ("none", None)


@pytest.mark.parametrize(
    ("request_arguments", "answer"),
    [
        ({}, page(f"{SHOP}/gone", status=404)),
        ({}, page(f"{SHOP}/broken", status=500)),
        ({}, page(f"{SHOP}/partial", status=206)),
        ({}, page(f"{SHOP}/challenge", headers={"Cf-Mitigated": "challenge"})),
        ({}, page(f"{SHOP}/file", headers={"Content-Disposition": "Attachment; filename=x.html"})),
        ({}, page(f"{SHOP}/feed", headers={"Content-Type": "application/json"})),
        ({}, page(f"{SHOP}/pixel", headers={"Content-Type": "image/png"})),
        ({}, Response(f"{SHOP}/nothing")),
        ({"meta": {"navigation": False}}, page(f"{SHOP}/fragment")),
        ({"callback": NO_CALLBACK}, page(f"{SHOP}/pipeline")),
        ({"meta": {"pacing_dest": "iframe"}}, page(f"{SHOP}/frame")),
        ({"headers": {"Accept": "application/json"}}, page(f"{SHOP}/api")),
        ({"meta": {"dont_trail": True}}, page(f"{SHOP}/aside")),
        ({"method": "HEAD"}, page(f"{SHOP}/head")),
    ],
    ids=lambda value: value.url.rpartition("/")[2] if isinstance(value, Response) else "",
)
def test_what_is_no_page_does_not_come_into_view(request_arguments, answer):
    """Errors, challenges, downloads, sub-resources and frames leave the page in view as it was."""
    road = Road()
    road.visit(f"{SHOP}/list")
    request = Request(answer.url, **request_arguments)
    road.ask(request)
    road.answer(request, answer)
    assert road.ask(Request(f"{SHOP}/item"))["referer"] == f"{SHOP}/list"


def test_robots_txt_is_no_page():
    """What Scrapy fetches of a site by itself is not in view afterwards, even as HTML, and nobody clicked it (I094)."""
    road = Road()
    robots = Request(f"{SHOP}/robots.txt", callback=NO_CALLBACK)
    sent = road.ask(robots)
    road.answer(robots, page(robots.url))
    assert sent["sec-fetch-dest"] == "empty"
    assert "sec-fetch-user" not in sent
    assert ours(road.ask(Request(f"{SHOP}/item"))) == TYPED


def test_a_cached_or_invented_answer_does_not_come_into_view():
    """An answer that did not come over the network shows no page: the site never saw the visit."""
    road = Road()
    request = Request(f"{SHOP}/cached")
    cached = page(request.url)
    cached.flags.append("cached")
    road.answer(request, cached)
    assert "referer" not in road.ask(Request(f"{SHOP}/item"))


def test_a_page_without_a_content_type_is_judged_by_its_class():
    """HTML that lacks its header is a page all the same."""
    road = Road()
    request = Request(f"{SHOP}/bare")
    road.ask(request)
    road.answer(request, page(request.url).replace(headers={}))
    assert road.ask(Request(f"{SHOP}/item"))["referer"] == f"{SHOP}/bare"


def test_two_crawls_of_a_state_are_one_visitor():
    """The page that one spider got is where the other one's next request comes from."""
    state = SharedState.create(PacingPolicy(interval=0))
    one, two = Road(state), Road(state)
    one.visit(f"{SHOP}/list")
    assert two.ask(Request(f"{SHOP}/item"))["referer"] == f"{SHOP}/list"


# -- who wins ---------------------------------------------------------------------------------------------------------


def test_the_page_that_held_the_link_wins_over_the_page_in_view():
    """A link found earlier comes from its own page, whatever was got since."""
    road = Road()
    held = road.visit(f"{SHOP}/list")
    road.visit(f"{SHOP}/elsewhere")
    assert road.ask(road.follow(held, Request(f"{SHOP}/item")))["referer"] == f"{SHOP}/list"


def test_an_explicit_referer_stays_word_for_word():
    """A Referer that the spider has set is sent as it is, and Sec-Fetch-Site says what it means (I091)."""
    road = Road()
    held = road.visit(f"{SHOP}/list")
    search = "https://search.example3/?q=secret"
    sent = road.ask(road.follow(held, Request(f"{SHOP}/item", headers={"Referer": search})))
    assert site_and_referer(sent) == ("cross-site", search)
    sent = road.ask(road.follow(held, Request(f"{SHOP}/item", headers={"Referer": None})))
    assert sent["sec-fetch-site"] == "none"
    assert not sent["referer"]


def test_a_referer_that_another_component_has_set_stays():
    """What a middleware puts in place of Scrapy's Referer is not taken for Scrapy's."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{OTHER}/item"))
    request.headers["Referer"] = f"{WWW}/whole/address"
    assert site_and_referer(road.ask(request)) == ("cross-site", f"{WWW}/whole/address")


def test_a_default_referer_of_the_project_stays():
    """DEFAULT_REQUEST_HEADERS are the user's too."""
    road = Road(DEFAULT_REQUEST_HEADERS={"Referer": "https://search.example3/"})
    assert site_and_referer(road.ask(Request(f"{SHOP}/item"))) == ("cross-site", "https://search.example3/")


def test_a_header_of_the_spider_is_neither_doubled_nor_contradicted():
    """I095: what the spider sets of Sec-Fetch stands once, and the rest agrees with it."""
    road = Road()
    sent = road.ask(Request(f"{SHOP}/a", headers={"sec-fetch-site": "cross-site"}))
    assert sent["sec-fetch-site"] == "cross-site"
    sent = road.ask(Request(f"{SHOP}/a", headers={"Sec-Fetch-Dest": "image"}))
    assert ours(sent) == {"sec-fetch-site": "same-origin", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    sent = road.ask(Request(f"{SHOP}/a", headers={"Sec-Fetch-Mode": "cors"}))
    assert ours(sent) == {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
    sent = road.ask(Request(f"{SHOP}/a", headers={"Sec-Fetch-Dest": "no such thing"}))
    assert sent["sec-fetch-dest"] == "no such thing"


@pytest.mark.parametrize("key", ["playwright", "impersonate", "dont_trail"])
def test_a_handler_with_headers_of_its_own_keeps_them(key):
    """I095: a request that a browser makes, or an impersonating client, gets nothing from us."""
    road = Road()
    road.visit(f"{SHOP}/list")
    assert ours(road.ask(Request(f"{SHOP}/item", meta={key: "chrome"}))) == {}
    assert ours(road.ask(Request(f"{SHOP}/item", meta={key: None}))) != {}


def test_a_page_that_a_browser_got_is_in_view():
    """What a browser handler fetched is where the plain requests after it come from."""
    road = Road()
    road.visit(f"{SHOP}/list", meta={"playwright": True})
    assert road.ask(Request(f"{SHOP}/item"))["referer"] == f"{SHOP}/list"


def test_the_switches():
    """PACING_TRAIL alone writes Referer, PACING_FETCH_METADATA alone the rest, neither writes anything."""
    for trail in (True, False):
        for metadata in (True, False):
            road = Road(PACING_TRAIL=trail, PACING_FETCH_METADATA=metadata)
            road.visit(f"{SHOP}/list")
            sent = ours(road.ask(Request(f"{SHOP}/item")))
            assert ("referer" in sent) is trail
            assert ("sec-fetch-site" in sent) is metadata
            assert len(sent) == (1 if trail else 0) + (5 if metadata else 0)


def test_without_the_trail_scrapys_referer_is_untouched():
    """PACING_TRAIL = False leaves what Scrapy writes, redirects included; the metadata agrees with it."""
    road = Road(PACING_TRAIL=False)
    request = road.follow(road.visit(f"{SHOP}/list?q=1"), Request(f"{SHOP}/go"))
    road.ask(request)
    sent = road.ask(road.redirect(request, f"{OTHER}/item"))
    assert site_and_referer(sent) == ("cross-site", f"{SHOP}/go")


def test_without_scrapys_referer_middleware_the_page_in_view_counts():
    """REFERER_ENABLED = False: what comes next comes from the page in view, through redirects too."""
    road = Road(REFERER_ENABLED=False)
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/go"))
    assert road.ask(request)["referer"] == f"{SHOP}/list"
    assert site_and_referer(road.ask(road.redirect(request, f"{OTHER}/x"))) == ("cross-site", f"{SHOP}/")


def test_dont_pace_has_a_trail_all_the_same():
    """A request that does not wait is of the same visitor."""
    road = Road()
    road.visit(f"{SHOP}/list")
    assert road.ask(Request(f"{SHOP}/item", meta={"dont_pace": True}))["referer"] == f"{SHOP}/list"


# -- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "target", "expected"),
    [
        (f"{SHOP}/list?q=1", f"{SHOP}/item", ("same-origin", f"{SHOP}/list?q=1")),
        (f"{SHOP}/list?q=1", f"{WWW}/item", ("same-site", f"{SHOP}/")),
        (f"{SHOP}/list?q=1", f"{OTHER}/item", ("cross-site", f"{SHOP}/")),
        ("https://a.co.uk/x", "https://b.co.uk/", ("cross-site", "https://a.co.uk/")),
        ("http://shop.example/list", f"{SHOP}/item", ("cross-site", "http://shop.example/")),
        (f"{SHOP}/list?q=1", "http://shop.example/item", (None, None)),
    ],
)
def test_a_followed_link_shows_as_much_as_a_browser_would(held, target, expected):
    """I091: full to the own origin, the origin to others, nothing from https to http; Scrapy alone shows it all."""
    road = Road()
    assert site_and_referer(road.ask(road.follow(road.visit(held), Request(target)))) == expected


def test_a_post_was_never_typed():
    """I091: a POST without a known page says same-origin, not none, and has its user."""
    road = Road()
    sent = road.ask(FormRequest(f"{SHOP}/login", formdata={"a": "b"}))
    assert site_and_referer(sent) == ("same-origin", None)
    assert sent["sec-fetch-user"] == "?1"


@pytest.mark.parametrize("url", ["file:///home/me/list.html", "data:text/html,x", "s3://bucket/list"])
def test_a_page_that_is_not_http_is_nobody(url):
    """I086: links of a local file lead cross-site, without a Referer."""
    road = Road()
    held = page(url)
    held.request = Request(url)
    assert site_and_referer(road.ask(road.follow(held, Request(f"{SHOP}/item")))) == ("cross-site", None)


def test_userinfo_and_fragment_are_shown_to_nobody():
    """I089: neither password nor fragment stands in a Referer, though the password looks like the port."""
    road = Road()
    held = road.visit("http://u:80@h.example:80/p#f")
    sent = road.ask(road.follow(held, Request("http://h.example/next")))
    assert sent["referer"] == "http://h.example/p"
    assert road.ask(Request("http://h.example/later"))["referer"] == "http://h.example/p"


@pytest.mark.filterwarnings("ignore:Could not load referrer policy:RuntimeWarning")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("no-referrer, strict-origin-when-cross-origin", f"{SHOP}/list"),
        ("strict-origin-when-cross-origin, no-referrer", None),
        (["no-referrer", "origin"], f"{SHOP}/"),
        (["origin", "no-referrer"], None),
        ("what-is-this", f"{SHOP}/list"),
        ("origin, what-is-this", f"{SHOP}/"),
        ("", f"{SHOP}/list"),
        (",;=\x01\xff", f"{SHOP}/list"),
        ("no-referrer" + "," * 10_000, None),
    ],
)
def test_the_last_known_word_of_a_referrer_policy_counts(policy, expected):
    """I088: words, lines and nonsense in a Referrer-Policy header; nothing in it raises (Scrapy warns of some)."""
    for followed in (True, False):
        road = Road()
        held = road.visit(f"{SHOP}/list", headers={"Referrer-Policy": policy})
        request = Request(f"{SHOP}/item")
        assert road.ask(road.follow(held, request) if followed else request).get("referer") == expected


@pytest.mark.filterwarnings("ignore:Could not load referrer policy:RuntimeWarning")
@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ('<meta name="referrer" content="no-referrer">', None),
        ("<META content=origin NAME=' Referrer '>", f"{SHOP}/"),
        ('<meta name=referrer content="never">', None),
        ('<meta name=referrer content="nonsense">', f"{SHOP}/list"),
        ('<meta name=referrer content="no-referrer"><meta name=referrer content="origin">', f"{SHOP}/"),
        ("<meta name=description content='no referrer here'>", f"{SHOP}/list"),
        ("<meta name=referrer", f"{SHOP}/list"),
        ("x" * 20_000 + '<meta name="referrer" content="no-referrer">', f"{SHOP}/list"),
    ],
)
def test_the_pages_own_meta_element_is_obeyed(head, expected):
    """What the page itself says of its referrer wins over its header, for links and for the page in view."""
    for followed in (True, False):
        road = Road()
        body = f"<html><head>{head}</head></html>".encode()
        held = road.visit(f"{SHOP}/list", body=body, headers={"Referrer-Policy": "unsafe-url"})
        request = Request(f"{SHOP}/item")
        assert road.ask(road.follow(held, request) if followed else request).get("referer") == expected


def test_the_meta_element_is_read_when_the_body_is_decoded():
    """A compressed body says nothing at 950; when it is decoded, its page is told its policy, unless another came."""
    road = Road()
    body = b'<html><head><meta name="referrer" content="no-referrer"></head></html>'
    request = Request(f"{SHOP}/list")
    road.ask(request)
    raw = page(request.url, body=gzip.compress(body))
    run(road.pacing.process_response(request, raw))
    assert road.ask(Request(f"{SHOP}/soon"))["referer"] == f"{SHOP}/list"
    road.pacing._response_received(raw.replace(body=body))
    assert "referer" not in road.ask(Request(f"{SHOP}/item"))
    road.visit(f"{SHOP}/other")
    road.pacing._response_received(raw.replace(body=body))
    assert road.ask(Request(f"{SHOP}/item"))["referer"] == f"{SHOP}/other"


def test_the_spiders_own_policy_wins():
    """meta referrer_policy, Scrapy's key, is the link's own policy."""
    road = Road()
    held = road.visit(f"{SHOP}/list", headers={"Referrer-Policy": "no-referrer"})
    sent = road.ask(road.follow(held, Request(f"{OTHER}/item", meta={"referrer_policy": "unsafe-url"})))
    assert sent["referer"] == f"{SHOP}/list"
    custom = {"referrer_policy": "scrapy.spidermiddlewares.referer.OriginPolicy"}
    assert road.ask(road.follow(held, Request(f"{SHOP}/item", meta=custom)))["referer"] == f"{SHOP}/"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("unsafe-url", f"{SHOP}/list"), ("scrapy.spidermiddlewares.referer.OriginPolicy", f"{SHOP}/")],
)
def test_the_projects_policy_holds_where_the_page_has_none(setting, expected):
    """REFERRER_POLICY is obeyed as Scrapy obeys it, also where it names a class."""
    road = Road(REFERRER_POLICY=setting)
    held = road.visit(f"{SHOP}/list")
    assert road.ask(road.follow(held, Request(f"{OTHER}/item")))["referer"] == expected
    hidden = road.visit(f"{SHOP}/hidden", headers={"Referrer-Policy": "no-referrer"})
    assert "referer" not in road.ask(road.follow(hidden, Request(f"{SHOP}/item")))


# -- redirects --------------------------------------------------------------------------------------------------------


def test_a_redirect_leaks_nothing():
    """I085: the next host sees the origin of the page that held the link, and nothing of the redirecting URL."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/p?tok=1"))
    road.ask(request)
    sent = road.ask(road.redirect(request, f"{OTHER}/land"))
    assert site_and_referer(sent) == ("cross-site", f"{SHOP}/")
    assert "tok" not in str(sent)


def test_a_redirect_from_https_to_http_shows_nothing():
    """I085: and it stays so when the chain comes back to https."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/p?tok=1"))
    road.ask(request)
    plain = road.redirect(request, "http://other.example2/land")
    assert ours(road.ask(plain)) == {"upgrade-insecure-requests": "1"}
    assert site_and_referer(road.ask(road.redirect(plain, f"{SHOP}/home"))) == ("cross-site", None)


@pytest.mark.parametrize(
    ("start", "hops", "expected"),
    [
        (f"{SHOP}/a", [f"{SHOP}/b", f"{OTHER}/c"], ["same-origin", "same-origin", "cross-site"]),
        (f"{SHOP}/a", [f"{OTHER}/b", f"{SHOP}/c"], ["same-origin", "cross-site", "cross-site"]),
        (f"{SHOP}/a", [f"{WWW}/b", f"{SHOP}/c"], ["same-origin", "same-site", "same-site"]),
        ("http://shop.example/a", [f"{SHOP}/b"], [None, "cross-site"]),
    ],
)
def test_the_worst_hop_of_a_chain_counts(start, hops, expected):
    """I092: coming home does not make a chain better; http to https is another site."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(start))
    seen = [road.ask(request).get("sec-fetch-site")]
    for hop in hops:
        request = road.redirect(request, hop)
        seen.append(road.ask(request).get("sec-fetch-site"))
    assert seen == expected


def test_a_typed_chain_stays_typed():
    """I092: wherever it leads, nobody's page began it, and the redirecting URL is not named."""
    road = Road()
    request = Request("http://shop.example/a?tok=1")
    road.ask(request)
    for hop in (f"{SHOP}/b?tok=2", f"{OTHER}/c"):
        request = road.redirect(request, hop)
        assert ours(road.ask(request)) == TYPED


def test_a_chain_keeps_its_page_though_another_came_into_view():
    """What the crawl fetched while a redirect waited for its turn changes nothing of where it began."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/go"))
    road.ask(request)
    redirected = road.redirect(request, f"{SHOP}/item")
    road.visit(f"{SHOP}/meanwhile")
    assert road.ask(redirected)["referer"] == f"{SHOP}/list"


def test_a_cookie_check_that_leads_to_the_same_url_is_a_redirect():
    """A page that redirects to itself is one chain, not a retry."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/a"))
    road.ask(request)
    again = road.redirect(request, f"{SHOP}/a")
    assert road.ask(again)["referer"] == f"{SHOP}/list"
    assert len(again.meta["pacing_trail"]["hops"]) == 1


def test_an_explicit_referer_is_cut_for_the_next_hop():
    """What the spider set began the chain; the next host sees what a browser would show of it."""
    road = Road()
    request = Request(f"{SHOP}/a", headers={"Referer": f"{SHOP}/list?q=1"})
    assert road.ask(request)["referer"] == f"{SHOP}/list?q=1"
    assert road.ask(road.redirect(request, f"{OTHER}/b"))["referer"] == f"{SHOP}/"


def test_an_image_keeps_its_destination_through_a_redirect():
    """What is loaded stays what it is, whatever the next URL looks like."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/a.png", meta={"navigation": False}))
    road.ask(request)
    assert road.ask(road.redirect(request, f"{OTHER}/image?id=1"))["sec-fetch-dest"] == "image"


def test_a_meta_refresh_comes_from_its_own_page_without_a_user():
    """A page that sends its visitor on by itself is where the next one comes from."""
    road = Road()
    request = Request(f"{SHOP}/a")
    road.ask(request)
    body = f"<meta http-equiv=refresh content='0; url={OTHER}/b'>".encode()
    sent = road.ask(road.answer(request, page(request.url, body=body)))
    assert site_and_referer(sent) == ("cross-site", f"{SHOP}/")
    assert "sec-fetch-user" not in sent


REFRESH = "<meta http-equiv=refresh content='0; url={}'>"
HIDDEN = "<meta name=referrer content=no-referrer>"


def refreshed(road, target, *, head="", headers=None, meta=None, url=f"{SHOP}/a?tok=1"):
    """Ask for a page that leads on by a meta refresh; return the request that Scrapy makes of it."""
    request = Request(url, meta=meta or {})
    road.ask(request)
    return road.answer(request, page(url, body=(head + REFRESH.format(target)).encode(), headers=headers))


@pytest.mark.parametrize("meta", [{}, {"dont_pace": True}], ids=str)
@pytest.mark.parametrize("target", [f"{OTHER}/b", f"{SHOP}/b"])
@pytest.mark.parametrize(("head", "headers"), [(HIDDEN, None), ("", {"Referrer-Policy": "no-referrer"})])
def test_a_meta_refresh_obeys_the_policy_of_its_own_page(meta, target, head, headers):
    """A dereferrer page hides where its visitor came from, by header or in its body, paced or not."""
    road = Road()
    sent = road.ask(refreshed(road, target, head=head, headers=headers, meta=meta))
    assert "referer" not in sent
    assert sent["sec-fetch-site"] == ("cross-site" if target.startswith(OTHER) else "same-origin")


def test_a_meta_refresh_obeys_its_page_though_another_came_into_view():
    """What the crawl fetched while the refresh waited for its turn does not undo the page's policy."""
    road = Road()
    request = refreshed(road, f"{OTHER}/b", head=HIDDEN)
    road.visit(f"{SHOP}/meanwhile")
    assert "referer" not in road.ask(request)


def test_a_page_that_leads_on_hides_itself_from_the_other_pages_too():
    """It is in view until the next page is got, and says by its body that it is not to be shown."""
    road = Road()
    refreshed(road, f"{OTHER}/b", head=HIDDEN)
    assert site_and_referer(road.ask(Request(f"{SHOP}/item"))) == ("same-origin", None)


@pytest.mark.parametrize(
    ("policy", "target", "expected"),
    [
        ("", f"{OTHER}/b", None),
        ("unsafe-url", f"{OTHER}/b", None),
        ("", f"{SHOP}/b", f"{SHOP}/a?tok=1"),
        ("unsafe-url", f"{SHOP}/b", f"{SHOP}/a?tok=1"),
        ("origin", f"{SHOP}/b", None),
        ("no-referrer", f"{SHOP}/b", None),
    ],
)
def test_a_refreshing_page_that_nobody_read_is_shown_to_no_other_origin(policy, target, expected):
    """Without Scrapy's RefererMiddleware its body may forbid what its header allows."""
    road = Road(REFERER_ENABLED=False)
    request = refreshed(road, target, head=HIDDEN if expected is None else "", headers={"Referrer-Policy": policy})
    assert road.ask(request).get("referer") == expected
    if expected is not None:
        assert "referer" not in road.ask(road.redirect(request, f"{OTHER}/c"))


def test_an_unpaced_redirects_policy_is_obeyed():
    """dont_pace says nothing about what may be shown: the redirecting answer's own word counts."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/go", meta={"dont_pace": True}))
    road.ask(request)
    redirected = road.redirect(request, f"{OTHER}/b", headers={"Referrer-Policy": "no-referrer"})
    assert site_and_referer(road.ask(redirected)) == ("cross-site", None)


def test_an_unpaced_page_comes_into_view_but_a_cached_one_does_not():
    """The site saw the one visit, and nothing of the other."""
    road = Road()
    road.visit(f"{SHOP}/unpaced", meta={"dont_pace": True}, headers={"Referrer-Policy": "origin"})
    road.answer(Request(f"{SHOP}/cached", meta={"dont_pace": True}), page(f"{SHOP}/cached"))
    assert road.ask(Request(f"{SHOP}/item"))["referer"] == f"{SHOP}/"


@pytest.mark.parametrize("target", [f"{OTHER}/b", f"{SHOP}/b"])
@pytest.mark.parametrize("key", ["dont_trail", "impersonate", "playwright"])
def test_a_redirect_without_a_trail_leaks_nothing(key, target):
    """Who writes no Referer of ours is left none of Scrapy's that names the redirecting URL, nor by a meta refresh."""
    road = Road()
    for held in (None, road.visit(f"{SHOP}/list")):
        request = Request(f"{SHOP}/p?tok=1", meta={key: "chrome"})
        request = request if held is None else road.follow(held, request)
        road.ask(request)
        redirected = road.redirect(request, target)
        assert "referer" not in road.ask(redirected)
        assert "referer" not in road.ask(road.redirect(redirected, f"{SHOP}/c"))
    assert "referer" not in road.ask(refreshed(road, target, meta={key: "chrome"}))


def test_a_redirect_that_came_from_the_cache_begins_at_the_page_that_held_the_link():
    """A first hop that never left (a cached redirect) has no record of its own; its URL is shown to nobody."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/p?tok=1"))
    assert site_and_referer(road.ask(road.redirect(request, f"{OTHER}/b"))) == ("cross-site", f"{SHOP}/")
    typed = Request(f"{SHOP}/p?tok=1")
    assert ours(road.ask(road.redirect(typed, f"{OTHER}/c"))) == TYPED


# -- coming back ------------------------------------------------------------------------------------------------------


def test_a_retry_does_not_take_our_own_headers_for_the_spiders():
    """A failed request says the same when it is tried again, and each header once."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/item"))
    first = ours(road.ask(request))
    again = road.retry(request)
    road.visit(f"{SHOP}/meanwhile")
    assert ours(road.ask(again)) == first
    redirected = road.redirect(again, f"{OTHER}/b")
    assert site_and_referer(road.ask(redirected)) == ("cross-site", f"{SHOP}/")


def test_a_retry_keeps_what_the_spider_has_set():
    """A header of the spider's stays through retries and redirects."""
    road = Road()
    request = Request(f"{SHOP}/item", headers={"Sec-Fetch-Site": "same-site", "Referer": f"{WWW}/x"})
    road.ask(request)
    again = road.retry(request)
    assert site_and_referer(road.ask(again)) == ("same-site", f"{WWW}/x")
    assert road.ask(road.redirect(again, f"{SHOP}/b"))["sec-fetch-site"] == "same-site"


def test_copied_meta_does_not_make_another_request_part_of_the_chain():
    """meta=response.meta, which many spiders write, takes no hop and no header over."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/go"))
    road.ask(request)
    redirected = road.redirect(request, f"{OTHER}/b")
    road.ask(redirected)
    got = road.answer(redirected, page(redirected.url))
    copied = road.follow(got, Request(f"{OTHER}/c", meta=got.meta))
    assert site_and_referer(road.ask(copied)) == ("same-origin", f"{OTHER}/b")


def test_a_request_made_anew_for_another_url_loses_our_headers():
    """response.request.replace(url=...) copies headers; ours are not taken for the spider's."""
    road = Road()
    request = road.follow(road.visit(f"{OTHER}/x"), Request(f"{SHOP}/a"))
    road.ask(request)
    got = road.answer(request, page(request.url))
    assert site_and_referer(road.ask(road.follow(got, request.replace(url=f"{SHOP}/b")))) == (
        "same-origin",
        f"{SHOP}/a",
    )


def test_what_is_kept_in_meta_is_plain():
    """A request that departed can wait on disk, with Scrapy's pickle queues and its marshal queues."""
    road = Road()
    request = road.follow(road.visit(f"{SHOP}/list"), Request(f"{SHOP}/go"))
    assert pickle.loads(pickle.dumps(request.meta)) == request.meta
    road.ask(request)
    redirected = road.redirect(request, f"{OTHER}/b")
    road.ask(redirected)
    assert marshal.loads(marshal.dumps(redirected.meta)) == redirected.meta


# -- what a request is for --------------------------------------------------------------------------------------------


def test_only_a_navigation_has_a_user():
    """I094: JSON, images and what pipelines fetch carry no Sec-Fetch-User; a form does."""
    road = Road()
    for request in (
        JsonRequest(f"{SHOP}/api", data={}),
        Request(f"{SHOP}/a.png", callback=NO_CALLBACK),
        Request(f"{SHOP}/x", meta={"navigation": False}),
        Request(f"{SHOP}/x", meta={"pacing_dest": "image"}),
    ):
        sent = road.ask(request)
        assert "sec-fetch-user" not in sent
        assert "upgrade-insecure-requests" not in sent
        assert sent["sec-fetch-mode"] in {"cors", "no-cors"}
    assert road.ask(FormRequest(f"{SHOP}/form", formdata={"a": "b"}))["sec-fetch-user"] == "?1"


def test_a_component_can_say_that_it_navigates():
    """meta navigation = True on a request without a callback makes it a visit."""
    assert ours(Road().ask(Request(f"{SHOP}/x", callback=NO_CALLBACK, meta={"navigation": True}))) == TYPED


def test_a_bad_destination_is_refused_before_it_costs_anything():
    """A typo in pacing_dest is an error that names it, and no gap is drawn for it."""
    road = Road()
    with pytest.raises(ValueError, match=r"pacing_dest is 'picture'; allowed: audio"):
        run(road.pacing.process_request(Request(f"{SHOP}/x", meta={"pacing_dest": "picture"})))
    assert road.state.pacer.in_flight(SHOP) == 0
    assert "pacing/requests" not in road.crawler.stats.get_stats()


def test_plain_http_gets_no_fetch_metadata():
    """A server on plain http gets Referer and Upgrade-Insecure-Requests only; loopback gets it all."""
    road = Road()
    road.visit("http://a.test/list")
    assert set(ours(road.ask(Request("http://a.test/item")))) == {"referer", "upgrade-insecure-requests"}
    assert len(ours(road.ask(Request("http://127.0.0.1:8000/item")))) == 5


@pytest.mark.parametrize("url", ["data:text/plain,x", "file:///etc/passwd", "s3://bucket/key"])
def test_other_schemes_get_nothing(url):
    """I086: what is not http has no headers of ours."""
    assert ours(Road().ask(Request(url))) == {}


@pytest.fixture(scope="module")
def road():
    return Road()


@given(
    st.binary(max_size=60),
    st.binary(max_size=60),
    st.binary(max_size=200),
    st.sampled_from([200, 301, 302, 404, 500]),
)
def test_nothing_that_a_server_sends_raises(road, policy, location, body, status):
    """Any Referrer-Policy, Location and body: the answer comes through, and the next request goes out."""
    request = Request(f"{SHOP}/a", meta={"dont_redirect": True, "dont_retry": True})
    road.ask(request)
    headers = {"Referrer-Policy": policy, "Location": location}
    road.answer(request, page(request.url, body=b"<meta name=referrer " + body, headers=headers, status=status))
    following = Request(f"{SHOP}/b")
    assert road.ask(following)["sec-fetch-mode"] == "navigate"
    road.answer(following, page(following.url))
