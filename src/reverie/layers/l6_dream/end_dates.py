"""Read the absolute dates of a text, by their figures and by the English and German names of months."""

from __future__ import annotations

import re
from calendar import month_abbr, month_name, monthrange
from datetime import date
from typing import Final

from ...text.dates import without_quotes

_GERMAN: Final = {"januar": 1, "februar": 2, "märz": 3, "mai": 5, "juni": 6, "juli": 7, "oktober": 10, "dezember": 12}
_NAMES: Final = _GERMAN | {
    name.lower(): number for names in (month_name, month_abbr) for number, name in enumerate(names) if name
}
_MONTH: Final = "|".join(sorted(_NAMES, key=len, reverse=True))
_END: Final = "(?:st|nd|rd|th|\\.)?"
_DATE: Final = re.compile(
    rf"""(?<![\w.-])(?:
      (?P<y1>\d{{4}})-(?P<m1>\d\d)(?:-(?P<d1>\d\d))?(?![\w-])
    | (?P<d2>\d{{1,2}})\.[ ]?(?P<m2>\d{{1,2}})\.[ ]?(?P<y2>\d{{4}})(?!\d)
    | (?:(?P<d3>\d{{1,2}}){_END}[ ])?(?P<m3>{_MONTH})\.?[ ](?:(?P<d4>\d{{1,2}}){_END},?[ ])?(?P<y3>\d{{4}})(?!\d)
    )|(?P<y5>\d{{4}})年(?P<m5>\d{{1,2}})月(?:(?P<d5>\d{{1,2}})日)?""",
    re.IGNORECASE | re.VERBOSE,
)


def last_day(text: str) -> date | None:
    """Return the latest day that a text names in figures outside quotes; a month without a day means its last one."""
    return max((day for found in _DATE.finditer(without_quotes(text)) if (day := _day(found))), default=None)


def _day(found: re.Match[str]) -> date | None:
    year, month = (next(found[f"{part}{at}"] for at in (1, 2, 3, 5) if found[f"{part}{at}"]) for part in "ym")
    number = _NAMES.get(month.lower()) or int(month)
    day = next((found[f"d{at}"] for at in range(1, 6) if found[f"d{at}"]), None)
    try:
        return date(int(year), number, int(day) if day else monthrange(int(year), number)[1])
    except ValueError:
        return None
