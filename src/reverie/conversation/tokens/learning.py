"""Corrections of the token estimate, learned per model and content class from billed token counts.

Each bill gives one equation: the tokens added since the last bill, estimated by class and multiplied by the unknown
corrections, equal the increase of the bill. A Kalman filter over the classes solves these equations one by one. It
starts from corrections of 1, and an outlier (the request held something the log does not show) has bounded influence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import ceil
from operator import mul
from typing import Any, Final

from msgspec import Struct, field

from .estimate import BASE64, CLASSES, FRAME, MEDIA, THINKING, Measure, measure_message

_TEXT: Final = range(BASE64 + 1)
_COUNT: Final = len(CLASSES)
_TEXT_VARIANCE, _TEXT_SHARED, _LOOSE_VARIANCE = 0.05, 0.035, 0.2
_NOISE_SHARE, _NOISE_TOKENS = 0.06, 15.0
_OUTLIER: Final = 3.0
_SETTLED: Final = 0.01
_DATE: Final = re.compile(r"[-@]20\d{6}$")

Vector = tuple[float, ...]
Matrix = tuple[Vector, ...]


def _prior_covariance() -> Matrix:
    """Return the prior covariance: errors of text classes are correlated, those of framing and thinking not."""
    rows = [[0.0] * _COUNT for _ in CLASSES]
    for one in _TEXT:
        for other in _TEXT:
            rows[one][other] = _TEXT_VARIANCE if one == other else _TEXT_SHARED
    rows[THINKING][THINKING] = rows[FRAME][FRAME] = _LOOSE_VARIANCE
    return tuple(tuple(row) for row in rows)


_LOWEST: Final = tuple(0.25 if at in (THINKING, FRAME) else 1.0 if at == MEDIA else 0.5 for at in range(_COUNT))
_HIGHEST: Final = tuple(1 / lowest for lowest in _LOWEST)
_PRIOR: Final = _prior_covariance()


@lru_cache(maxsize=256)
def model_key(model: str) -> str:
    """Return the key under which corrections are shared: the model without provider, date and window suffix."""
    name = model.strip().lower().split("/")[-1].split(":")[-1]
    return _DATE.sub("", name.removesuffix("[1m]"))


class Correction(Struct, frozen=True):
    """The corrections of one model: a factor per class, their covariance, and the number of bills learned from."""

    factors: Vector = (1.0,) * _COUNT
    covariance: Matrix = _PRIOR
    replies: int = 0

    def tokens(self, measure: Measure) -> float:
        """Return the sum of a measure's estimated tokens, each content class multiplied by its learned factor."""
        return sum(map(mul, self.factors, measure.by_class))

    def learned(self, measure: Measure, actual: float) -> Correction:
        """Return corrections that learned from a measure and its billed tokens; the same if either is 0."""
        expected = measure.by_class
        total = sum(expected)
        if total <= 0 or actual <= 0:
            return self
        gain = _times(self.covariance, expected)
        spread = sum(map(mul, gain, expected))
        surprise = actual - sum(map(mul, self.factors, expected))
        noise = (_NOISE_SHARE * total) ** 2 + _NOISE_TOKENS**2
        variance = max(spread + noise, (surprise / _OUTLIER) ** 2)
        move = surprise / variance
        factors = tuple(
            [
                low if (moved := factor + step * move) < low else high if moved > high else moved
                for factor, step, low, high in zip(self.factors, gain, _LOWEST, _HIGHEST, strict=True)
            ]
        )
        # Once a bill adds little information, keep the covariance, so that later changes are still learned.
        settled = spread < _SETTLED * noise
        narrowed = self.covariance if settled else _narrowed(self.covariance, gain, variance)
        return Correction(factors, narrowed, self.replies + 1)


# The next two are unrolled for eight classes: they run once per reply, and nested loops took most of a turn.


def _times(matrix: Matrix, vector: Vector) -> list[float]:
    a, b, c, d, e, f, g, h = vector
    return [
        a * p + b * q + c * r + d * s + e * t + f * u + g * v + h * w  # a row
        for p, q, r, s, t, u, v, w in matrix
    ]


def _narrowed(matrix: Matrix, gain: list[float], variance: float) -> Matrix:
    """Return the covariance after a bill: subtract the outer product of the gain."""
    a, b, c, d, e, f, g, h = gain
    shares = [step / variance for step in gain]
    return tuple(
        [
            (p - k * a, q - k * b, r - k * c, s - k * d, t - k * e, u - k * f, v - k * g, w - k * h)
            for k, (p, q, r, s, t, u, v, w) in zip(shares, matrix, strict=True)
        ]
    )


_UNCORRECTED: Final = Correction()
_NONE: Final[Mapping[str, Correction]] = {}


class Estimator(Struct, frozen=True):
    """The corrections of all models; immutable, so learning returns a new estimator."""

    models: Mapping[str, Correction] = field(default_factory=lambda: _NONE)

    def correction(self, model: str) -> Correction:
        """Return the corrections of a model; factors of 1 if none were learned."""
        return self.models.get(model_key(model), _UNCORRECTED)

    def factors(self, model: str) -> dict[str, float]:
        """Return a dict from the name of each content class to the model's correction factor."""
        return dict(zip(CLASSES, self.correction(model).factors, strict=True))

    def corrected(self, measure: Measure, model: str) -> int:
        """Return the tokens of a measure, corrected for the model and rounded up."""
        return ceil(self.correction(model).tokens(measure))

    def tokens(self, message: Mapping[str, Any], model: str) -> int:
        """Return the estimated tokens of one message, corrected for the model and rounded up."""
        return self.corrected(measure_message(message), model)

    def tokens_of(self, messages: Iterable[Mapping[str, Any]], model: str) -> int:
        """Return the estimated tokens of all these messages together, corrected for the model and rounded up."""
        correction = self.correction(model)
        return ceil(sum(correction.tokens(measure_message(message)) for message in messages))

    def learned(self, model: str, expected: Measure, actual: float) -> Estimator:
        """Return a new estimator that learned from one bill of the model: the measured and the billed tokens."""
        key = model_key(model)
        correction = self.models.get(key, _UNCORRECTED).learned(expected, actual)
        return Estimator({**self.models, key: correction})
