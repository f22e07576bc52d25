"""Which memories are worth holding against each other: those that share enough of what few others have."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from .lexicon import kind_of
from .statements import Profile
from .words import HARD, Word

__all__ = ["likely_pairs"]

_SHARE = 0.3
_SHORT = 2
_COMMON = 60
"""A word that more memories have than this, and more than a tenth of them, brings none together."""


def likely_pairs(profiles: Mapping[str, Profile]) -> list[tuple[str, str]]:
    """Return the pairs of files, in order, whose memories may be about one thing."""
    words = {file: _words(profile) for file, profile in profiles.items()}
    having: dict[str, list[str]] = defaultdict(list)
    for file in sorted(words):
        for word in sorted(words[file]):
            having[word].append(file)
    total = len(words)
    weights = {word: math.log(1 + total / len(files)) for word, files in having.items()}
    wholes = {
        file: min(_whole(profile, weights), sum(weights[one] for one in words[file]))
        for file, profile in profiles.items()
    }
    common = max(_COMMON, total // 10)
    shared: dict[tuple[str, str], float] = defaultdict(float)
    for word, files in having.items():
        if len(files) > common:
            continue
        weight = weights[word]
        for at, one in enumerate(files):
            for other in files[at + 1 :]:
                shared[one, other] += weight
    return sorted(pair for pair, weight in shared.items() if weight >= _SHARE * min(wholes[pair[0]], wholes[pair[1]]))


def _words(profile: Profile) -> frozenset[str]:
    found: set[str] = set()
    for statement in (*profile.description, *profile.claims):
        for word in statement.words:
            found.add(word.form)
            if kind := kind_of(word.form):
                found.add(f"kind:{kind}")
        if len(statement.words) <= _SHORT:  # little else could bring these together
            found.update(f"light:{word.form}" for word in statement.every if word.light)
    return frozenset(found)


def _whole(profile: Profile, weights: Mapping[str, float]) -> float:
    """Return the weight of the lightest claim: two memories may share no more than one sentence."""
    return min((_weight(claim.words, weights) for claim in profile.claims), default=0.0)


def _weight(words: Iterable[Word], weights: Mapping[str, float]) -> float:
    forms = {word.form for word in words if word.kind not in HARD}
    return sum(weights.get(form, 0.0) for form in forms)
