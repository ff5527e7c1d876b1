"""What can bind a visitor to a site, from the cheapest thing to put right to the dearest.

A site that refuses does so because of something it looked at. These are the things that it can look at, in the order
in which a visit offers them. The numbers are kept in files, so a number is never given to another meaning.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Layer"]


class Layer(IntEnum):
    """The layer on which a site was found to decide about a visitor.

    >>> Layer.of(8)
    <Layer.BEHAVIOUR: 8>
    >>> Layer.of(99) is None
    True
    """

    ADDRESS = 1
    """Where the request comes from: the network, the country, what the address did before."""
    TRANSPORT = 2
    """How the connection is made: the TLS and HTTP/2 handshake."""
    HEADERS = 3
    """Which header fields come, with what values and in which order."""
    COOKIES = 4
    """Whether a cookie that was given comes back."""
    SCRIPT = 5
    """Whether a script was run, or what it would have computed is sent."""
    CHALLENGE = 6
    """A task that has to be solved, whose proof is a clearance."""
    BROWSER = 7
    """What only a whole browser shows: rendering, fonts, the objects of the page."""
    BEHAVIOUR = 8
    """What the visitor has done over time: gaps, the way through the pages, age of the history."""

    @classmethod
    def of(cls, number: int | None) -> Layer | None:
        """Return the layer of a number, or None for one that this version does not know.

        No knowledge is safer than a guess: a file may come from a version that has more layers.
        """
        try:
            return None if number is None else cls(number)
        except ValueError:
            return None

    @property
    def reads_history(self) -> bool:
        """Whether this layer judges by what has accumulated, so that arriving cold costs something."""
        return self is Layer.BEHAVIOUR
