"""What replies teach the estimator: corrections per model and content class.

Each reply says what its request held; since the reply before, that is one equation: what was added, estimated by
class, times the corrections looked for, is what was billed. A Kalman filter over the classes solves it as the
equations come, starts from "the estimate is right", and gives an answer that does not fit (something was sent that
the log does not show) only bounded influence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import ceil
from operator import mul
from typing import Any, Final

from ..values import field, record
from .tokens import BASE64, CLASSES, FRAME, MEDIA, THINKING, Measure, measure_message

__all__ = ["Correction", "Estimator", "model_key"]

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
    """Expect text classes to be off together, as tokenizers are, and framing and thinking each on its own."""
    rows = [[0.0] * _COUNT for _ in CLASSES]
    for one in _TEXT:
        for other in _TEXT:
            rows[one][other] = _TEXT_VARIANCE if one == other else _TEXT_SHARED
    rows[THINKING][THINKING] = rows[FRAME][FRAME] = _LOOSE_VARIANCE
    return tuple(tuple(row) for row in rows)


_BOUNDS: Final = tuple(
    (0.25, 4.0) if kind in (THINKING, FRAME) else (1.0, 1.0) if kind == MEDIA else (0.5, 2.0) for kind in range(_COUNT)
)
_PRIOR: Final = _prior_covariance()


def model_key(model: str) -> str:
    """Name what is learned together: the model without provider, date and window suffix."""
    name = model.strip().lower().split("/")[-1].split(":")[-1]
    return _DATE.sub("", name.removesuffix("[1m]"))


@record
class Correction:
    """The corrections of one model: a factor per class, how uncertain they are, and how many replies taught them."""

    factors: Vector = (1.0,) * _COUNT
    covariance: Matrix = _PRIOR
    replies: int = 0

    def tokens(self, measure: Measure) -> float:
        """Correct a measure."""
        return sum(map(mul, self.factors, measure.by_class))

    def learned(self, measure: Measure, actual: float) -> Correction:
        """Learn that what was measured so turned out to be that many tokens."""
        expected = measure.by_class
        total = sum(expected)
        if total <= 0 or actual <= 0:
            return self
        gain = [sum(map(mul, row, expected)) for row in self.covariance]
        spread = sum(map(mul, gain, expected))
        surprise = actual - sum(map(mul, self.factors, expected))
        noise = (_NOISE_SHARE * total) ** 2 + _NOISE_TOKENS**2
        variance = max(spread + noise, (surprise / _OUTLIER) ** 2)
        move = surprise / variance
        factors = [
            min(high, max(low, factor + step * move))
            for factor, step, (low, high) in zip(self.factors, gain, _BOUNDS, strict=True)
        ]
        return Correction(tuple(factors), self._narrowed(gain, spread, noise, variance), self.replies + 1)

    def _narrowed(self, gain: list[float], spread: float, noise: float, variance: float) -> Matrix:
        """Be surer after a bill; once next to nothing is gained, stop, so that later change is still learned."""
        if spread < _SETTLED * noise:
            return self.covariance
        return tuple(
            [
                tuple([value - share * other for value, other in zip(row, gain, strict=True)])
                for row, share in zip(self.covariance, [step / variance for step in gain], strict=True)
            ]
        )


_UNCORRECTED: Final = Correction()
_NONE: Final[Mapping[str, Correction]] = {}


@record
class Estimator:
    """All corrections learned so far; learning returns a new estimator and leaves the old one as it was."""

    models: Mapping[str, Correction] = field(default_factory=lambda: _NONE)

    def correction(self, model: str) -> Correction:
        """Return what is known about a model."""
        return self.models.get(model_key(model), _UNCORRECTED)

    def factors(self, model: str) -> dict[str, float]:
        """Name the factor of each class."""
        return dict(zip(CLASSES, self.correction(model).factors, strict=True))

    def corrected(self, measure: Measure, model: str) -> int:
        """Return the tokens of a measure, corrected for the model."""
        return ceil(self.correction(model).tokens(measure))

    def tokens(self, message: Mapping[str, Any], model: str) -> int:
        """Estimate a message for a model."""
        return self.corrected(measure_message(message), model)

    def tokens_of(self, messages: Iterable[Mapping[str, Any]], model: str) -> int:
        """Estimate messages for a model."""
        correction = self.correction(model)
        return ceil(sum(correction.tokens(measure_message(message)) for message in messages))

    def learned(self, model: str, expected: Measure, actual: float) -> Estimator:
        """Learn from one reply: what was measured, and what it was billed."""
        correction = self.correction(model).learned(expected, actual)
        return Estimator({**self.models, model_key(model): correction})
