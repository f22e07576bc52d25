"""Trust: whose word a memory is, which is never better than the worst of what it was made from."""

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
        """Make the type for who checks values against it: a hook does not, and ``typing`` takes long to load."""
        if name != "Trust":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from typing import Literal

        return Literal[TRUSTS]


TRUSTS: Final[tuple[Trust, ...]] = ("user", "agent", "unconfirmed")
"""Best first: said or confirmed by the user; written by an agent; derived from text nobody vouches for."""

LABELS: Final[dict[Trust, str]] = {
    "user": "said or confirmed by the user",
    "agent": "written by an agent",
    "unconfirmed": "derived from untrusted text, not confirmed by the user",
}
_CLAIMS: Final[dict[str, Trust]] = {"": "agent", **{trust: trust for trust in TRUSTS}}


def worst(inputs: Iterable[Trust], *, default: Trust = "agent") -> Trust:
    """Return the trust of what is made from these inputs."""
    ranked = [TRUSTS.index(trust) for trust in inputs]
    return TRUSTS[max(ranked)] if ranked else default


def claimed(word: str) -> Trust:
    """Return the trust a file claims: an agent's where it says nothing, the worst where the word is not known."""
    return _CLAIMS.get(word, "unconfirmed")
