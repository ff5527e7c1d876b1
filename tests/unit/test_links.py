"""Which links of a page a visitor could see, and which are there for machines only."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from scrapy.http import HtmlResponse

from scrapy_pacing import Memory, forget_decoy, visible_links
from scrapy_pacing.testing import FakeClock

PAGE = "https://example.com/shop/page"


def links(html, url=PAGE):
    response = HtmlResponse(url, body=f"<html><body>{html}</body></html>".encode())
    return [link.removeprefix("https://example.com") for link in visible_links(response)]


VISIBLE = {
    "plain": '<a href="/x">x</a>',
    "relative": '<a href="../x">x</a>',
    "in an area": '<map><area href="/x"></map>',
    "aria-hidden alone": '<a aria-hidden="true" href="/x">x</a>',
    "tabindex alone": '<a tabindex="-1" href="/x">x</a>',
    "nofollow alone": '<a rel="nofollow" href="/x">x</a>',
    "shown again": '<div style="visibility: hidden"><a style="visibility:visible" href="/x">x</a></div>',
    "sized": '<a style="width: 0.5em; height: 1px" href="/x">x</a>',
    "automatic size": '<a style="width: auto; height: auto" href="/x">x</a>',
    "only narrow": '<a style="width:0" href="/x">x</a>',
    "moved a little": '<a style="position:relative; left: -20px" href="/x">x</a>',
    "fades in": '<div style="opacity: 0"><a href="/x">x</a></div>',
    "other style": '<a style="color: red; display: block" href="/x">x</a>',
    "broken style": '<a style=";;:; display" href="/x">x</a>',
    "inside details": "<details><summary>s</summary><a href='/x'>x</a></details>",
    "open dialog": "<dialog open><a href='/x'>x</a></dialog>",
}
HIDDEN = {
    "hidden": '<a hidden href="/x">x</a>',
    "in a hidden block": '<div hidden><p><a href="/x">x</a></p></div>',
    "nofollow in a hidden block": '<div hidden><a rel="nofollow" href="/x">x</a></div>',
    "display none": '<a style="DISPLAY : NONE !important" href="/x">x</a>',
    "block display none": '<ul style="color:red;display:none"><li><a href="/x">x</a></li></ul>',
    "visibility": '<div style="visibility:hidden"><a href="/x">x</a></div>',
    "collapse": '<a style="visibility: collapse" href="/x">x</a>',
    "aria-hidden and tabindex": '<a aria-hidden="true" tabindex="-1" href="/x">x</a>',
    "aria-hidden block and tabindex": '<div aria-hidden="true"><a tabindex="-1" href="/x">x</a></div>',
    "no size": '<a style="width:0; height:0px" href="/x">x</a>',
    "no size, other way": '<a style="max-width:0;max-height:0.0em" href="/x">x</a>',
    "no height, clipped": '<div style="height:0;overflow:hidden"><a href="/x">x</a></div>',
    "no letters": '<span style="font-size:0"><a href="/x">x</a></span>',
    "off the left": '<a style="position:absolute;left:-9999px" href="/x">x</a>',
    "off the top": '<a style="position:absolute;top:-100em" href="/x">x</a>',
    "off by indent": '<a style="text-indent:-999em" href="/x">x</a>',
    "off the right": '<a style="margin-left: 10000px" href="/x">x</a>',
    "shrunk": '<a style="transform: scale(0)" href="/x">x</a>',
}
NOT_SHOWN = {
    "template": '<template><a href="/x">x</a></template>',
    "noscript": '<noscript><a href="/x">x</a></noscript>',
    "dialog": '<dialog><a href="/x">x</a></dialog>',
    "no page": '<a href="mailto:x@example.com">x</a><a href="javascript:void(0)">x</a><a name="x">x</a>',
    "no URL": '<a href="http://[broken">x</a>',
}


@pytest.mark.parametrize("html", VISIBLE.values(), ids=VISIBLE)
def test_what_can_be_seen_is_returned(html):
    """Links that a visitor could see or reach are links."""
    assert links(html) == ["/x"]


@pytest.mark.parametrize("html", [*HIDDEN.values(), *NOT_SHOWN.values()], ids=[*HIDDEN, *NOT_SHOWN])
def test_what_is_hidden_from_people_is_left_out(html):
    """Links that the markup hides are none."""
    assert links(html) == []


def test_links_come_in_the_order_of_the_page_and_once():
    """The first place of a link counts."""
    assert links('<a href="/b">b</a><p><a href="/a">a</a></p><a href="/b">b</a><a href="/c#d">c</a>') == [
        "/b",
        "/a",
        "/c#d",
    ]


def test_links_are_relative_to_the_base_of_the_page():
    """A base element moves them, as in a browser."""
    response = HtmlResponse(
        PAGE, body=b'<html><head><base href="https://example.com/other/"></head><body><a href="x">x</a></body></html>'
    )
    assert visible_links(response) == ["https://example.com/other/x"]


def test_a_page_nested_without_end_is_read():
    """No depth of nesting ends the search in an exception."""
    assert links("<div>" * 5000 + '<a href="/x">x</a>') in (["/x"], [])


@given(st.text(), st.text(alphabet="abc:;%-.0123456789pxem ()", max_size=80))
def test_any_page_can_be_searched(text, style):
    """Whatever a site sends, nothing raises."""
    response = HtmlResponse(PAGE, body=f'<a style="{style}" href="{text}">x</a>{text}'.encode("utf-8", "replace"))
    assert isinstance(visible_links(response), list)


# -- decoys -------------------------------------------------------------------------------------------------------------


class Decoys:
    """A memory, as far as this is concerned."""

    def __init__(self):
        self.marked = []

    def note_shown(self, url):
        return False

    def mark_decoy(self, url, *, found):
        assert found
        self.marked.append(url.removeprefix("https://example.com"))
        return True


def decoys(html, monkeypatch, url=PAGE, **options):
    memory = Decoys()
    monkeypatch.setattr("scrapy_pacing.links.memory_behind", lambda response: memory)
    visible_links(HtmlResponse(url, body=f"<html><body>{html}</body></html>".encode()), **options)
    return memory.marked


@pytest.mark.parametrize("html", HIDDEN.values(), ids=HIDDEN)
def test_hidden_links_are_decoys(html, monkeypatch):
    """What people can't see is recorded."""
    assert decoys(html, monkeypatch) == ["/x"]


@pytest.mark.parametrize("html", NOT_SHOWN.values(), ids=NOT_SHOWN)
def test_what_a_script_may_show_is_no_decoy(html, monkeypatch):
    """A template, a closed dialog or what is for browsers without scripts is not a trap."""
    assert decoys(html, monkeypatch) == []


def test_what_can_be_seen_elsewhere_is_no_decoy(monkeypatch):
    """A menu for small screens repeats the links that others see."""
    html = '<div hidden><a href="/x">x</a><a href="/y#part">y</a></div><a href="/x">x</a><a href="/y">y</a>'
    assert decoys(html, monkeypatch) == []


def test_no_page_tells_of_other_sites_or_of_the_homepage_or_itself(monkeypatch):
    """A hidden link can't have another site's pages dropped, nor the way in, nor the page that has it."""
    hidden = "".join(
        f'<a hidden href="{href}">x</a>'
        for href in ("https://other.example/x", "http://example.com/x", "/", "https://example.com", PAGE, "#top")
    )
    assert decoys(hidden, monkeypatch) == []


@pytest.mark.parametrize("path", ["/robots.txt", "/robots.txt#x", "/", "/?"])
def test_no_hidden_link_makes_a_decoy_of_robots_txt_or_the_homepage(path, monkeypatch):
    """Without its robots.txt a site would be taken to allow everything."""
    assert decoys(f'<div style="display:none"><a href="{path}">x</a></div>', monkeypatch) == []


@pytest.mark.parametrize("shown_first", [True, False])
def test_a_link_that_another_page_shows_is_no_decoy(shown_first, monkeypatch, tmp_path):
    """A menu that is folded on some pages and open on others holds no decoys, whichever comes first."""
    memory = Memory(tmp_path / "memory.json", clock=FakeClock())
    monkeypatch.setattr("scrapy_pacing.links.memory_behind", lambda response: memory)
    folded = '<nav style="display:none"><a href="/contact#form">c</a></nav><a hidden href="/trap">x</a>'
    pages = [folded, '<a href="/contact">c</a>', folded]
    for html in pages[1:] if shown_first else pages:
        visible_links(HtmlResponse(PAGE, body=f"<html><body>{html}</body></html>".encode()))
    assert memory.decoys("https://example.com") == ["/trap"]


def test_no_page_takes_back_what_another_site_or_the_spider_has_marked(monkeypatch, tmp_path):
    """Only a site's own pages show that its URL is no decoy, and not if the spider said that it is."""
    memory = Memory(tmp_path / "memory.json", clock=FakeClock())
    monkeypatch.setattr("scrapy_pacing.links.memory_behind", lambda response: memory)
    memory.mark_decoy("https://example.com/told")
    memory.mark_decoy("https://other.example/trap", found=True)
    html = '<a href="/told">x</a><a href="https://other.example/trap">x</a>'
    visible_links(HtmlResponse(PAGE, body=html.encode()))
    assert memory.is_decoy("https://example.com/told")
    assert memory.is_decoy("https://other.example/trap")


def test_a_spider_can_say_that_a_url_is_no_decoy(monkeypatch, tmp_path):
    """What a spider takes back is sent again; a spider that remembers nothing has nothing to take back."""
    memory = Memory(tmp_path / "memory.json", clock=FakeClock())
    memory.mark_decoy("https://example.com/x")
    assert not forget_decoy(None, "https://example.com/x")
    monkeypatch.setattr("scrapy_pacing.findings.memory_of", lambda spider: memory)
    assert forget_decoy(None, "https://example.com/x")
    assert not memory.is_decoy("https://example.com/x")


def test_a_page_tells_of_a_bounded_number_and_of_none_if_asked(monkeypatch):
    """A page with a thousand hidden links fills no memory; record=False records nothing."""
    html = "<div hidden>" + "".join(f'<a href="/{number}">x</a>' for number in range(1000)) + "</div>"
    assert len(decoys(html, monkeypatch)) == 64
    assert decoys(html, monkeypatch, record=False) == []
