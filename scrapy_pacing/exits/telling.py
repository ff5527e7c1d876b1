"""What the log says of evidence, where the user may have to act."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_pacing.core.exits import Cause, Finding, Lease

logger = logging.getLogger(__name__)


def tell_finding(finding: Finding, *, exits: int, wait: float, spider: Spider | None) -> None:
    """Say that an exit is dead, that all are, or that none is left for an origin; ``wait`` is PACING_EXIT_WAIT."""
    extra = {"spider": spider}
    lease, cause = finding.lease, finding.cause.value
    if finding.exit_died:
        logger.warning(
            "Exit %r is dead: %s (met by %s). It gets one probe at a time", lease.exit, cause, lease.origin, extra=extra
        )
    if finding.exhausted:
        logger.error(
            "ALL EXITS ARE DEAD (%d of PACING_EXITS and PACING_EXITS_FILE): nothing rotates any more, and requests "
            "wait up to PACING_EXIT_WAIT = %g s for one to come back, then fail",
            exits,
            wait,
            extra=extra,
        )
    elif not finding.exit_died and not finding.moves:
        logger.error(
            "NO EXIT IS LEFT for %s (the last one: %s). If all of them are refused, the rule that calls it a ban may "
            "be wrong, or it is not about the address. Its requests wait up to PACING_EXIT_WAIT = %g s, then fail",
            lease.origin,
            cause,
            wait,
            extra=extra,
        )


def tell_rotation(lease: Lease, cause: Cause, *, spider: Spider | None) -> None:
    """Say that an origin no longer leaves by an exit, and why."""
    logger.info("%s no longer leaves by exit %r: %s", lease.origin, lease.exit, cause.value, extra={"spider": spider})
