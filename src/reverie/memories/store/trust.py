"""Trust: the author class of a memory, which is never better than the worst of its sources."""

from __future__ import annotations

from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Literal, TypeAlias

__all__ = ["LABELS", "TRUSTS", "Trust", "claimed", "worst"]

if TYPE_CHECKING:
    Trust: TypeAlias = Literal["user", "agent", "unconfirmed"]
else:

    def __getattr__(name):
        """Create the type ``Trust`` on first use; a hook does not need it, and ``typing`` loads slowly."""
        if name != "Trust":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from typing import Literal

        return Literal[TRUSTS]


TRUSTS: Final[tuple[Trust, ...]] = ("user", "agent", "unconfirmed")
"""The classes of trust, best first: by or confirmed by the user, by an agent, from untrusted text."""

LABELS: Final[dict[Trust, str]] = {
    "user": "said or confirmed by the user",
    "agent": "written by an agent",
    "unconfirmed": "derived from untrusted text, not confirmed by the user",
}
_CLAIMS: Final[dict[str, Trust]] = {"": "agent", **{trust: trust for trust in TRUSTS}}


def worst(inputs: Iterable[Trust]) -> Trust:
    """Return the lowest trust of these inputs, which content made from them gets; without any, ``agent``."""
    ranked = [TRUSTS.index(trust) for trust in inputs]
    return TRUSTS[max(ranked)] if ranked else "agent"


def claimed(word: str) -> Trust:
    """Return the trust that a file's word claims: ``agent`` if it is empty, ``unconfirmed`` if it is unknown."""
    return _CLAIMS.get(word, "unconfirmed")
