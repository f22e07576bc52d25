"""How people say a day by its distance from the one they write on: one pattern for all of it, with named parts."""

from __future__ import annotations

import re
from typing import Final

from ...memories.dates import MONTHS
from .distances import COUNT

__all__ = ["SAID", "SEASONS"]

_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_SHORT_DAY: Final = rf"{_DAY}|mon|tues?|wed|thu(?:rs?)?|fri|sat|sun"
_MONTH: Final = "|".join(MONTHS)
SEASONS: Final = ("spring", "summer", "autumn", "fall", "winter")
_SEASON: Final = "|".join(SEASONS)
_UNIT: Final = (
    r"(?:business\ |working\ |work\ |calendar\ )?days?|nights?|weeks?|wks?|months?|quarters?|years?|yrs?|fortnights?"
)
_HALF: Final = r"(?P<half{}>\ and\ a\ half)?"
_SPAN: Final = r"week|month|quarter|year"
_AHEAD: Final = r"next|this|last|coming|upcoming|previous|past|following|current"
_PART: Final = r"(?:\ (?P<part{}>morning|afternoon|evening|night|noon|lunchtime))?"

SAID: Final = re.compile(
    rf"""(?<![\w/.@#-])(?:
      (?:the\ )?(?P<two>day\ after\ tomorrow|day\ before\ yesterday|(?:night|evening|morning|day)\ before\ last)
    | (?P<near>today|tonight|tomorrow|yesterday){_PART.format(1)}(?P<own>['’]s)?
    | (?P<now>this\ (?:morning|afternoon|evening)|last\ night|earlier\ today|later\ today)
    | (?P<far>a|one|two|three|\d{{1,2}})\ (?P<funit>weeks?|days?|months?)\ (?P<dir>from|after|before)
        \ (?P<anchor>today|tomorrow|yesterday|now|(?:(?:next|this|coming)\ )?{_DAY})
    | (?:at\ )?(?:the\ )?(?P<edge>end|close|start|beginning|middle|first\ half|second\ half)\ of
        \ (?:the\ |(?P<ewhich>{_AHEAD})\ |the\ (?P<ewhich2>{_AHEAD})\ )?(?P<espan>{_SPAN}|day)(?!\ (?:on\ )?{_DAY})
    | (?P<soon>{COUNT})\ (?P<sunit>hours?|minutes?|hrs?|mins?)\ ago
    | (?P<eo>EOD|EOW|EOM|EOQ|EOY|COB)(?!\ (?:on\ )?(?:today|tomorrow|next|this|{_DAY}))
    | (?:on\ )?(?P<wday1>{_DAY})(?:\ of)?\ (?P<wwhich>next|this|last)\ week | (?:on\ )?(?P<wday1b>{_DAY})\ week
    | (?P<wwhich2>next|this|last)\ week(?:\ on)?\ (?P<wday2>{_DAY})
    | (?P<wday3>{_DAY})\ after\ next
    | (?P<wown>{_DAY})['’]s
    | (?:the\ )?(?P<skip>week|month|quarter|year)\ (?:after\ next|before\ last)
    | (?P<hedge>early|late|mid|later|earlier)[ -](?P<hwhich>{_AHEAD})\ (?P<hspan>{_SPAN})
    | (?P<weekend>over|on|at|during|by|before|after|until)\ the\ weekend
    | (?:within\ the\ (?P<wspan>{_SPAN})|(?P<mspan>{_SPAN})(?:['’]s\ |-|\ )end)
    | (?P<wago>{_DAY}\ an?\ week\ ago|an?\ week\ ago\ (?:on\ )?{_DAY})
    | (?:the\ |this\ )?(?P<which>{_AHEAD})\ (?P<span>{_SPAN}|weekend|{_SEASON}|{_SHORT_DAY}|{_MONTH}){_PART.format(2)}
        (?P<own2>['’]s)?
    | (?P<lead>in|within|(?:in|within|over|during)\ the\ (?:next|coming)|in\ (?:under|less\ than))
        \ (?:about\ |around\ |roughly\ |approximately\ )?
        (?:(?P<least>{COUNT})\ (?:to|or)\ |(?P<least2>\d{{1,3}})\ ?[-–]\ ?)?
        (?P<count>{COUNT})\ (?P<unit>{_UNIT}|hours){_HALF.format(1)}(?:['’]?s?\ time|\ from\ now)?
    | (?:about\ |around\ |roughly\ |approximately\ )?(?P<past>{COUNT})
        \ (?P<punit>{_UNIT})(?P<ortwo>\ or\ (?:two|so))?{_HALF.format(2)}
        \ (?P<pway>ago|earlier\ than\ today|back(?=[.,;]|$)|from\ (?:now|today)|hence)
    | (?P<lately>(?:over|in|during|for)\ the\ (?:last|past))\ (?P<lcount>{COUNT}|)\ ?(?P<lunit>{_UNIT})
    | (?P<prep>(?:by\ )?(?:EOD|COB|end\ of\ (?:the\ )?day|close\ of\ business)(?:\ on)?
          |(?:set|planned|agreed|booked|scheduled|slated)\ for
          |by|until|till|before|due|due\ on|due\ by|starting|beginning|effective|no\ later\ than|after|since|from
          |(?:moved|postponed|pushed|rescheduled|delayed|slipped|brought\ forward)(?:\ back|\ out)?\ (?:to|until))
        \ (?P<weekday>{_DAY}){_PART.format(3)}
    | (?P<onday>on\ |come\ |(?<=\bis\ )(?={_DAY}\ at\ \d))(?P<weekday2>{_DAY}){_PART.format(4)}
    | (?P<prep2>by|on|until|before|due|due\ on|due\ by|after|since)\ the\ (?P<nth>\d{{1,2}})(?:st|nd|rd|th)
        (?:\ of\ (?P<nwhich>this|next|last|the)\ month)?
    | (?P<bare>{_DAY})(?:\ (?P<part5>morning|afternoon|evening|night))?(?=[.,;!?)]|$|\ at\ \d)
    )(?![\w@-]|['’][a-z]|\.\w|/\w)""",
    re.IGNORECASE | re.VERBOSE,
)
