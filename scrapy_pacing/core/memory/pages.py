"""Recording and recalling what is known of single pages: validators, endpoints, decoys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from . import texts
from .facts import Facts, is_key, is_news
from .records import Decoy, Fact, Limits, Text, Validators

if TYPE_CHECKING:
    from collections.abc import Mapping

# How many URLs one process notes to have been shown; beyond that the first of them may be taken for decoys.
_MOST_SHOWN = 16_384
_OK, _NOT_MODIFIED = 200, 304


class Pages(Facts):
    """What is known of sites and of their pages; see `Facts` for how keys are made."""

    _limits: Limits
    _shown: dict[str, None]
    """Fingerprints of URLs that pages have shown; as an ordered set, in this process alone."""

    # -- validators ---------------------------------------------------------------------------------------------------

    def record_validators(
        self,
        url: str,
        *,
        etag: bytes | None = None,
        last_modified: bytes | None = None,
        status: int = _OK,
        vary: Mapping[str, str] | None = None,
    ) -> bool:
        """Keep the validators of an answer; return whether there is something to ask with next time.

        A 200 replaces what was kept, and forgets it if it brings none. A 304 refreshes what it brings and leaves the
        rest (RFC 9111 section 4.3.4). Any other status teaches nothing. ``vary`` maps the request fields that the
        answer varies by to a `fingerprint` of the value sent.
        """
        key = texts.key_of(url)
        if key is None or status not in (_OK, _NOT_MODIFIED):
            return False
        known = self.validators(url)
        if status == _NOT_MODIFIED and known is None:
            return False
        etag, last_modified = texts.kept_validator(etag), texts.kept_validator(last_modified)
        fields = texts.kept_vary(vary)
        if status == _NOT_MODIFIED and known is not None:
            etag, last_modified = etag or known.etag, last_modified or known.last_modified
            fields = known.vary if vary is None else fields
        if fields is None or (etag is None and last_modified is None):
            self.forget_validators(url)
            return False
        now = self._clock.wall()
        full_at = now if known is None or status == _OK else min(known.full_at, now)
        self._put_into("validators", key, Validators(now, etag, last_modified, status, fields, full_at))
        return True

    def validators(self, url: str) -> Validators | None:
        """Return what a page last answered with, or None."""
        key = texts.key_of(url)
        if key is None:
            return None
        with self._shelf.guard:
            record = self._shelf.find(key[0])
            found = None if record is None else record.validators.get(key[1])
        if found is None or (found.etag is None and found.last_modified is None):
            return None
        return found

    def forget_validators(self, url: str) -> None:
        """Note that a page can't be asked whether it has moved."""
        key = texts.key_of(url)
        if key is not None and self.validators(url) is not None:
            self._put_into("validators", key, Validators(self._clock.wall()))

    # -- endpoints and decoys -----------------------------------------------------------------------------------------

    def record_endpoint(self, origin: str, url: str, *, kind: str = "") -> bool:
        """Keep the URL of data behind the pages of an origin; return whether it is kept. ``kind``: a media type."""
        key = texts.key_of(url)
        if key is None or not is_key(origin) or not texts.fits(kind, texts.LONGEST_NAME):
            return False
        self._put_into("endpoints", (origin, "".join(key)), Text(self._clock.wall(), kind))
        return True

    def endpoints(self, origin: str) -> dict[str, str]:
        """Return the kinds of data behind an origin's pages by URL, the last recorded last."""
        with self._shelf.guard:
            record = self._shelf.find(origin)
            return {} if record is None else {url: fact.value or "" for url, fact in record.endpoints.items()}

    def mark_decoy(self, url: str, *, found: bool = False) -> bool:
        """Keep a URL as one that no visitor would follow; return whether it is kept.

        No homepage and no robots.txt is. ``found``: in a page's markup, which counts less than what pages have shown
        and what was said about the URL otherwise.
        """
        key = texts.key_of(url)
        if key is None or not texts.may_be_decoy(url):
            return False
        if found:
            known = self._decoy(key)
            if known is not None and (known.told or known.shown):
                return not known.shown
            if _shown_key(key) in self._shown:
                return False
        self._put_into("decoys", key, Decoy(self._clock.wall(), told=not found))
        return True

    def forget_decoy(self, url: str) -> bool:
        """Keep that a URL is no decoy, whatever markup is found; return whether it was marked as one."""
        key = texts.key_of(url)
        if key is None:
            return False
        was_marked = self.is_decoy(url)
        self._put_into("decoys", key, Decoy(self._clock.wall(), shown=True))
        return was_marked

    def note_shown(self, url: str) -> bool:
        """Note that a page shows a URL to visitors; return whether a mark that was found in markup is taken back."""
        key = texts.key_of(url)
        if key is None:
            return False
        shown = _shown_key(key)
        with self._shelf.guard:
            self._shown.pop(shown, None)
            self._shown[shown] = None
            if len(self._shown) > _MOST_SHOWN:
                del self._shown[next(iter(self._shown))]
        known = self._decoy(key)
        if known is None or known.told or known.shown:
            return False
        self._put_into("decoys", key, Decoy(self._clock.wall(), shown=True))
        return True

    def is_decoy(self, url: str) -> bool:
        """Return whether a URL, its fragment apart, is marked as a decoy."""
        key = texts.key_of(url)
        known = None if key is None else self._decoy(key)
        return known is not None and not known.shown and texts.may_be_decoy(url)

    def decoys(self, origin: str) -> list[str]:
        """Return the paths of an origin that are marked as decoys, the last recorded last."""
        with self._shelf.guard:
            record = self._shelf.find(origin)
            marks = {} if record is None else record.decoys
            return [target for target, mark in marks.items() if not mark.shown and texts.may_be_decoy(origin + target)]

    # -- inside ----------------------------------------------------------------------------------------------------

    def _decoy(self, key: tuple[str, str]) -> Decoy | None:
        with self._shelf.guard:
            record = self._shelf.find(key[0])
            return None if record is None else record.decoys.get(key[1])

    def _put_into(self, field: str, key: tuple[str, str], fact: Fact) -> None:
        """Put a fact under a URL, last in the order in which entries are dropped when there are too many."""
        origin, url = key
        with self._shelf.guard:
            record = self._shelf.find(origin)
            known = None if record is None else getattr(record, field).get(url)
            if known is not None and not is_news(known, fact) and _says_the_same(known, fact):
                return
            facts = getattr(self._shelf.edit(origin), field)
            facts.pop(url, None)
            facts[url] = fact
            while len(facts) > getattr(self._limits, field):
                del facts[next(iter(facts))]
        self._changed()


def _says_the_same(known: Fact, fact: Fact) -> bool:
    """Return whether two facts differ in nothing but when they were learned."""
    if isinstance(known, Validators) and isinstance(fact, Validators):
        known = msgspec.structs.replace(known, full_at=fact.full_at)
    return msgspec.structs.replace(known, at=fact.at) == fact


def _shown_key(key: tuple[str, str]) -> str:
    return texts.fingerprint("".join(key).encode())
