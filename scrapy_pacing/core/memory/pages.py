"""Recording and recalling what is known of single pages: validators, endpoints, decoys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from . import texts
from .facts import Facts, is_key, is_news
from .records import Fact, Limits, Text, Validators

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_VARYING = 16
_OK, _NOT_MODIFIED = 200, 304


class Pages(Facts):
    """What is known of sites and of their pages; see `Facts` for how keys are made."""

    _limits: Limits

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
        fields = _kept_vary(vary)
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

    def mark_decoy(self, url: str) -> bool:
        """Keep a URL as one that no visitor would follow; return whether it is kept."""
        key = texts.key_of(url)
        if key is None:
            return False
        self._put_into("decoys", key, Fact(self._clock.wall()))
        return True

    def is_decoy(self, url: str) -> bool:
        """Return whether a URL, its fragment apart, is marked as a decoy."""
        key = texts.key_of(url)
        if key is None:
            return False
        with self._shelf.guard:
            record = self._shelf.find(key[0])
            return record is not None and key[1] in record.decoys

    def decoys(self, origin: str) -> list[str]:
        """Return the paths of an origin that are marked as decoys, the last recorded last."""
        with self._shelf.guard:
            record = self._shelf.find(origin)
            return [] if record is None else list(record.decoys)

    # -- inside ----------------------------------------------------------------------------------------------------

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


def _kept_vary(vary: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the fields an answer varies by, or None if they can't be kept: nothing may then be asked by it."""
    if not vary:
        return {}
    if len(vary) > _MAX_VARYING:
        return None
    fields = {name.lower(): value for name, value in vary.items()}
    if all(
        texts.fits(name, texts.LONGEST_NAME) and texts.fits(value, texts.LONGEST_NAME) for name, value in fields.items()
    ):
        return fields
    return None
