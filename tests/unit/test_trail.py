"""Where the next request says it comes from."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st

from scrapy_pacing.core.referrer_policy import POLICIES
from scrapy_pacing.core.trail import TYPED, Page, Trail

SHOP = "https://shop.example"


def test_a_first_visit_was_typed() -> None:
    """Without a page in view a page is asked for as if its address had been typed."""
    assert Trail().headers_for(f"{SHOP}/item") == {
        "Upgrade-Insecure-Requests": "1",
        "Sec-Fetch-Site": "none",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-User": "?1",
        "Sec-Fetch-Dest": "document",
    }


def test_the_page_in_view_is_where_the_next_request_begins() -> None:
    """The latest page of an origin is the referrer of what follows there, and of nothing elsewhere."""
    trail = Trail()
    trail.page(f"{SHOP}/")
    trail.page(f"{SHOP}/list?page=2#top")
    sent = trail.headers_for(f"{SHOP}/item")
    assert sent["Referer"] == f"{SHOP}/list?page=2"
    assert sent["Sec-Fetch-Site"] == "same-origin"
    for elsewhere in (
        "https://www.shop.example/",
        "http://shop.example/",
        "https://shop.example:8443/",
    ):
        assert "Referer" not in trail.headers_for(elsewhere)


def test_the_origin_is_told_by_its_normal_form() -> None:
    """Case, default port and userinfo make no other origin."""
    trail = Trail()
    trail.page("HTTPS://u:pw@SHOP.example:443/a")
    assert trail.headers_for(f"{SHOP}/b")["Referer"] == f"{SHOP}/a"
    assert len(trail) == 1


def test_the_page_that_held_the_link_wins_over_the_page_in_view() -> None:
    """Where Scrapy knows the page, the page in view has no say."""
    trail = Trail()
    trail.page(f"{SHOP}/other")
    assert trail.headers_for(f"{SHOP}/item", initiator=f"{SHOP}/list")["Referer"] == f"{SHOP}/list"


def test_a_foreign_page_is_cross_site_and_shows_its_origin() -> None:
    """A page of another site is never beside a `none`, and never shown in full (I091)."""
    sent = Trail().headers_for(f"{SHOP}/item", initiator="https://search.example2/?q=secret+words")
    assert sent["Sec-Fetch-Site"] == "cross-site"
    assert sent["Referer"] == "https://search.example2/"


@pytest.mark.parametrize(
    ("kwargs", "site", "referrer"),
    [
        ({}, "none", None),
        ({"initiator": ""}, "none", None),
        ({"initiator": "about:blank"}, "none", None),
        ({"initiator": f"{SHOP}/list"}, "same-origin", f"{SHOP}/list"),
        ({"initiator": "https://www.shop.example/list"}, "same-site", "https://www.shop.example/"),
        ({"initiator": "https://other.example2/list"}, "cross-site", "https://other.example2/"),
        ({"initiator": "http://shop.example/list"}, "cross-site", "http://shop.example/"),
        ({"initiator": "file:///home/me/list.html"}, "cross-site", None),
        ({"initiator": "data:text/html,x"}, "cross-site", None),
        ({"initiator": "garbage"}, "cross-site", None),
        ({"method": "POST"}, "same-origin", None),
        ({"method": "POST", "initiator": ""}, "same-origin", None),
        ({"navigation": False}, "same-origin", None),
        ({"dest": "iframe"}, "same-origin", None),
    ],
)
def test_none_is_for_typed_addresses_only(kwargs: dict[str, object], site: str, referrer: str | None) -> None:
    """`none` stands beside no Referer, no POST and no sub-resource (I091, I086)."""
    sent = Trail().headers_for(f"{SHOP}/x", **kwargs)  # type: ignore[arg-type]
    assert sent["Sec-Fetch-Site"] == site
    assert sent.get("Referer") == referrer


def test_the_pages_policy_is_obeyed() -> None:
    """A page that hides its address stays hidden, whether in view or named as the one with the link."""
    trail = Trail()
    trail.page(f"{SHOP}/hidden", referrer_policy=[b"unsafe-url", b"no-referrer"])
    assert "Referer" not in trail.headers_for(f"{SHOP}/item")
    assert "Referer" not in trail.headers_for(f"{SHOP}/item", initiator=f"{SHOP}/hidden#top")
    assert trail.headers_for(f"{SHOP}/item")["Sec-Fetch-Site"] == "same-origin"
    trail.page(f"{SHOP}/open")
    assert trail.headers_for(f"{SHOP}/item")["Referer"] == f"{SHOP}/open"


def test_the_links_own_policy_wins_over_the_pages() -> None:
    """rel=noreferrer hides an open page, and an attribute opens a hidden one; a word unknown is no policy."""
    trail = Trail()
    trail.page(f"{SHOP}/a", referrer_policy="origin")
    hidden = trail.headers_for(f"{SHOP}/b", referrer_policy="no-referrer")
    assert "Referer" not in hidden
    shown = trail.headers_for("https://other.example2/", initiator=f"{SHOP}/a", referrer_policy="unsafe-url")
    assert shown["Referer"] == f"{SHOP}/a"
    assert trail.headers_for(f"{SHOP}/b", referrer_policy="what")["Referer"] == f"{SHOP}/"


def test_a_redirect_keeps_the_page_that_held_the_link() -> None:
    """The redirecting URL, token included, is shown to nobody; https to http shows nothing at all (I085)."""
    trail = Trail()
    first = f"{SHOP}/p?tok=1"
    abroad = trail.headers_for("https://other.example2/land", initiator=f"{SHOP}/list", redirects=[first])
    assert abroad["Referer"] == f"{SHOP}/"
    assert abroad["Sec-Fetch-Site"] == "cross-site"
    assert "tok" not in "".join(abroad.values())
    plain = trail.headers_for("http://other.example2/land", initiator=f"{SHOP}/list", redirects=[first])
    assert plain == {"Upgrade-Insecure-Requests": "1"}


def test_what_was_cut_is_never_restored() -> None:
    """A chain that comes home still shows the origin only, or nothing once it was on plain http."""
    trail = Trail()
    page = f"{SHOP}/list"
    home = trail.headers_for(f"{SHOP}/z", initiator=page, redirects=[f"{SHOP}/a", "https://other.example2/"])
    assert home["Referer"] == f"{SHOP}/"
    hidden = trail.headers_for(f"{SHOP}/z", initiator=page, redirects=["http://a.test/"])
    assert "Referer" not in hidden
    assert hidden["Sec-Fetch-Site"] == "cross-site"


def test_a_redirecting_answers_policy_counts_from_the_next_hop() -> None:
    """Its Referrer-Policy changes what the next server sees, and nonsense in it changes nothing."""
    trail = Trail()

    def landed(policy: object) -> str | None:
        return trail.headers_for(
            "https://other.example2/",
            initiator=f"{SHOP}/list",
            redirects=[(f"{SHOP}/a", policy)],  # type: ignore[list-item]
        ).get("Referer")

    assert landed("unsafe-url") == f"{SHOP}/list"
    assert landed([b"unsafe-url", b"no-referrer"]) is None
    assert landed("same-origin") is None
    assert landed("nonsense") == f"{SHOP}/"


def test_a_typed_chain_stays_typed() -> None:
    """Wherever an address that was typed leads, the site stays none, by way of plain http too (I092)."""
    trail = Trail()
    trail.page(f"{SHOP}/list")
    sent = trail.headers_for("https://other.example2/", initiator=TYPED, redirects=["http://shop.example/", f"{SHOP}/"])
    assert sent["Sec-Fetch-Site"] == "none"
    assert sent["Sec-Fetch-User"] == "?1"
    assert "Referer" not in sent


def test_a_chain_begins_where_it_began() -> None:
    """The page kept with the first hop counts, though another page has come into view meanwhile."""
    trail = Trail()
    trail.page(f"{SHOP}/list", referrer_policy="unsafe-url")
    began = trail.initiator_of(f"{SHOP}/a")
    kept = pickle.loads(pickle.dumps(tuple(began)))
    trail.page(f"{SHOP}/other", referrer_policy="no-referrer")
    sent = trail.headers_for("https://other.example2/", initiator=kept, redirects=[f"{SHOP}/a"])
    assert sent["Referer"] == f"{SHOP}/list"


def test_without_a_kept_page_a_chain_begins_at_its_first_hop() -> None:
    """The page in view of the first URL's origin counts, not that of the place it led to."""
    trail = Trail()
    trail.page(f"{SHOP}/list")
    trail.page("https://other.example2/elsewhere")
    sent = trail.headers_for("https://other.example2/", redirects=[f"{SHOP}/a"])
    assert sent["Referer"] == f"{SHOP}/"
    assert sent["Sec-Fetch-Site"] == "cross-site"


def test_a_posted_form_stays_a_page_of_its_own_when_it_turns_into_a_get() -> None:
    """A form posted from an unknown page is same-origin before and after its 302."""
    trail = Trail()
    began = trail.initiator_of(f"{SHOP}/login", method="POST")
    assert began == Page(f"{SHOP}/", "no-referrer")
    sent = trail.headers_for(f"{SHOP}/home", initiator=began, redirects=[f"{SHOP}/login"])
    assert sent["Sec-Fetch-Site"] == "same-origin"
    assert "Referer" not in sent


def test_a_meta_refresh_has_no_user() -> None:
    """A navigation that nobody's click began says so."""
    sent = Trail().headers_for(f"{SHOP}/b", initiator=f"{SHOP}/a", user=False)
    assert "Sec-Fetch-User" not in sent
    assert sent["Upgrade-Insecure-Requests"] == "1"


def test_a_sub_resource_comes_from_the_page_in_view() -> None:
    """An image has the page as its Referer and nothing of a navigation (I094)."""
    trail = Trail()
    trail.page(f"{SHOP}/list")
    assert trail.headers_for(f"{SHOP}/a.png", navigation=False) == {
        "Sec-Fetch-Site": "same-origin",
        "Sec-Fetch-Mode": "no-cors",
        "Sec-Fetch-Dest": "image",
        "Referer": f"{SHOP}/list",
    }
    assert trail.in_view(SHOP) == Page(f"{SHOP}/list")


@pytest.mark.parametrize("url", ["data:text/plain,x", "file:///etc/passwd", "s3://b/k", "", "x"])
def test_what_is_not_http_has_no_trail(url: str) -> None:
    """Other schemes get no headers and never become the page in view (I086)."""
    trail = Trail()
    trail.page(url)
    assert len(trail) == 0
    assert trail.in_view(url) is None
    assert trail.headers_for(url, initiator=f"{SHOP}/") == {}


def test_forgetting_makes_a_new_visitor() -> None:
    """Once forgotten, an origin's next page is typed again, and other origins keep theirs."""
    trail = Trail()
    trail.page(f"{SHOP}/list")
    trail.page("https://other.example2/list")
    trail.forget(SHOP)
    trail.forget("https://never.seen.example")
    assert trail.headers_for(f"{SHOP}/item")["Sec-Fetch-Site"] == "none"
    assert trail.headers_for("https://other.example2/item")["Sec-Fetch-Site"] == "same-origin"


def test_the_number_of_pages_is_bounded() -> None:
    """However many origins a crawl sees, the one used longest ago goes."""
    trail = Trail(max_origins=3)
    for number in range(3):
        trail.page(f"https://h{number}.example/a")
    trail.headers_for("https://h0.example/b")
    trail.page("https://h3.example/a")
    trail.page("https://h3.example/b")
    assert len(trail) == 3
    assert trail.in_view("https://h1.example/") is None
    assert trail.in_view("https://h0.example/") is not None
    trail.page("https://h4.example/" + "x" * 1_000_000)
    assert trail.in_view("https://h4.example/") == Page("https://h4.example/")


@pytest.mark.parametrize("number", [0, -1])
def test_a_trail_without_room_is_refused(number: int) -> None:
    """A bound below 1 is an error that names it."""
    with pytest.raises(ValueError, match=rf"max_origins is {number}; allowed: 1 or more"):
        Trail(max_origins=number)


def test_a_wrong_destination_is_refused() -> None:
    """The error names the meta key, also where the URL is not http."""
    for url in (f"{SHOP}/", "file:///x"):
        with pytest.raises(ValueError, match="pacing_dest is 'picture'"):
            Trail().headers_for(url, dest="picture")


URLS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "https://a.example/x?y#zq9frag",
            "https://zq9user:zq9pw@a.example:8443/x",
            "http://zq9user@b.test/#zq9frag",
            "http://localhost/z",
            "data:,x",
            "https://\\@[/",
            "http://[::1",
        ]
    ),
    st.text(max_size=30).map("https://a.example/".__add__),
)
POLICY = st.one_of(st.sampled_from(sorted(POLICIES)), st.text(max_size=30), st.lists(st.binary(max_size=20)))


@given(
    page=URLS,
    policy=POLICY,
    url=URLS,
    initiator=st.one_of(st.none(), URLS, st.tuples(URLS, st.text(max_size=20))),
    link=POLICY,
    redirects=st.lists(st.one_of(URLS, st.tuples(URLS, POLICY)), max_size=4),
    navigation=st.booleans(),
    method=st.sampled_from(["GET", "POST", "HEAD", "weird"]),
)
def test_nothing_that_a_server_sends_raises_or_leaks(
    page: str,
    policy: object,
    url: str,
    initiator: object,
    link: object,
    redirects: list[object],
    navigation: bool,
    method: str,
) -> None:
    """Any URL, policy and chain gives headers that can be sent, without userinfo and fragment."""
    trail = Trail()
    trail.page(page, referrer_policy=policy)  # type: ignore[arg-type]
    sent = trail.headers_for(
        url,
        initiator=initiator,  # type: ignore[arg-type]
        referrer_policy=link,  # type: ignore[arg-type]
        redirects=redirects,  # type: ignore[arg-type]
        navigation=navigation,
        method=method,
    )
    for value in sent.values():
        assert all("\x21" <= character <= "\x7e" for character in value)
        assert "zq9" not in value
    if sent.get("Sec-Fetch-Site") == "none":
        assert "Referer" not in sent
        assert sent["Sec-Fetch-Dest"] == "document"


HOPS = st.lists(st.sampled_from(["https://a.example/1", "http://a.example/2", "https://b.example/3"]), max_size=5)


@given(hops=HOPS, secure=st.booleans())
def test_https_pages_are_never_shown_to_plain_http_by_default(hops: list[str], secure: bool) -> None:
    """Under the default policy no chain shows an https page to an http server, nor to anybody after it."""
    target = "https://a.example/end" if secure else "http://a.example/end"
    sent = Trail().headers_for(target, initiator="https://a.example/list", redirects=hops)
    if any(hop.startswith("http:") for hop in [*hops, target]):
        assert "Referer" not in sent
    else:
        assert "Referer" in sent
