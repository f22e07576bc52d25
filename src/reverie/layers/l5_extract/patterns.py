"""What gives a rule away: the words by which people ask, correct and confirm, and what they say only for now.

Every pattern is written for precision: what is about the task at hand should match none of them.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "ALL_MUST",
    "ANY",
    "ASK_FIRST",
    "AS_A_RULE",
    "BARE_NO",
    "BIDDING",
    "CODE",
    "CONTRAST",
    "DONT",
    "DONT_WANT",
    "DURABLE",
    "ENDS_ALWAYS",
    "ENDS_FROM_NOW",
    "EVER",
    "FOR_ALL",
    "FROM_NOW",
    "GENERAL",
    "HERE",
    "HERE_ALWAYS",
    "INSTEAD",
    "IN_CASE",
    "I_LIKE",
    "KEEP",
    "KEEP_THAT",
    "LEAD",
    "MOMENTARY",
    "NO",
    "NONE_OF",
    "ONLY_WANT",
    "OPENS_RULE",
    "OTHERS_WANT",
    "POINTED",
    "POLICY",
    "POLITE",
    "PRAISED",
    "REQUESTS",
    "RIGHT_CALL",
    "RULE",
    "SO_DONT",
    "STOPPED",
    "STOP_IT",
    "STRONG",
    "UNLESS_I",
    "URL",
    "VERB",
    "WE",
    "WEAK",
    "WE_USE",
    "WHEN",
    "WHENEVER",
    "WHY",
    "WHY_BESIDE",
    "WHY_NEXT",
    "YOU_KEEP",
]

ANY: Final = re.IGNORECASE
LEAD: Final = re.compile(
    r"(?:(?:hold on|wait|careful|please|pls|also|and|but|so|ok(?:ay)?|hey|hi|btw|by the way|oh|well|right|great"
    r"|thanks?(?: you)?|fyi"
    r"|hmm|yes"
    r"|yeah|yep|sure|just|one more thing|another thing|important|note|remember|for the record|actually|look"
    r"|first|second"
    r"|in general|generally)\b[\s,:;.!—–-]*)+",
    ANY,
)
# -- what is never kept
MOMENTARY: Final = re.compile(
    r"\b(?:for now|right now|at the moment|this time|just this once|temporarily|for the moment|until that is done"
    r"|in th(?:is|at) (?:file|function|method|class|test|pr|patch|diff|commit|session|conversation|case|message"
    r"|step|task|one)"
    r"|th(?:is|at) (?:file|function|method|class|tests?|bug|error|line|branch|pr|commit|change|issue|failure"
    r"|exception|warning|part|block|snippet|output|traceback|task|step|command|script|code|variable|import"
    r"|config)s?\b"
    r"|the (?:above|below|following|attached|previous|current|last (?!(?:\w+ )?(?:years?|months?|decades?)\b)) ?\w+"
    r"|line \d+|step \d+|as (?:above|below)"
    r"|in your (?:answer|reply|response) (?:to this|here)|never ?mind|always (?:been|has|had|was|is|the case))\b",
    ANY,
)
# One of several things that both can see, or something that was just named.
POINTED: Final = re.compile(
    r"\bthe (?:first|second|third|last(?! (?:\w+ )?(?:years?|months?|decades?)\b)|other|latter|former) (?:\w+|$)"
    r"|\bthe one\b|\b(?:option|version"
    r"|variant) (?:[a-d]|\d)\b"
    r"|^(?:no[\s,]+)?(?:please )?(?:don'?t|do not|never|always|use|stop|avoid)\s+(?:\w+ )?(?:this|that|it|them"
    r"|those|these|here|anything else|both|either)\b",
    ANY,
)
HERE: Final = re.compile(r"\b(?:localhost|127\.0\.0\.1|0\.0\.0\.0)\b", ANY)
REQUESTS: Final = re.compile(
    r"\b(?:can|could|would|will) (?:you|we)\b|\bhurry\b|\bplease (?!always|never|remember|don'?t)\w+|\bsorry\b", ANY
)
CODE: Final = re.compile(
    r"\b[\w-]+/[\w./-]+\.\w{1,5}\b|\b\w+\(\)|::\w|\b\w+\.(?:py|js|ts|tsx|go|rs|java|c|cc|cpp|h|rb|php|sql|sh"
    r"|toml|ya?ml|json|md|txt)\b"
    r"|[{}]|;\s*$|=>|==|\w+\[\w*\]",
)
URL: Final = re.compile(r"https?://[^\s<>\"')\]]+", ANY)
WHY: Final = re.compile(
    r"[\s,;:—–(-]+\b(?:because|since(?! (?:\d|last|yesterday|then))|as (?=it |that |we |the |this |they |I )|so that"
    r"|otherwise|the reason (?:is|being)(?: that)?|due to|given that|or else)\b[\s,:]*(?P<why>.{8,300})$",
    ANY,
)
WHY_BESIDE: Final = re.compile(
    r"\s*[,;:—–]\s+(?P<why>(?:our|we|we've|we're|it|it's|they|nobody|somebody|everyone|everything|people"
    r"|last (?:time|week|month|year)|i (?:can|can't|hate|find|need|read|know))\b(?:\s+\S+){2,40})$",
    ANY,
)
BIDDING: Final = re.compile(
    r"(?:please |in [\w -]{2,40}, )?(?:always|never|don'?t|do not|no|use|stop|avoid|prefer|keep|leave|you (?:should"
    r"|must))\b|\w+ing\b",
    ANY,
)
WHY_NEXT: Final = re.compile(
    r"(?:because|since|the reason(?: is)?(?: that)?|that's because|this is because|it's because|otherwise|why:"
    r"|reason:"
    r"|last (?:time|week|month|year)|some(?:body|one) |we (?:had|lost|spent|once|already)|they never |nobody "
    r"|one of (?:them|those)|we got burned"
    r"|we've been burned|we were burned|it (?:broke|breaks|hides|causes|caused|cost|confuses)"
    r"|that (?:broke|breaks|hides|causes|caused|cost|confuses)|i (?:hate|find) )\b[\s,:]*(?P<rest>.*)$",
    ANY | re.DOTALL,
)
WHEN: Final = re.compile(
    r"\b(?:when(?:ever)?|before|after|every time|each time|unless|if|in (?:tests?|reviews?|commit messages?"
    r"|prs?|docs?"
    r"|python|typescript|rust|go|this (?:repo|repository|project|codebase)))\b[^.;,]{2,120}",
    ANY,
)

# -- "remember ..."
STRONG: Final = re.compile(
    r"(?:(?:can|could|would|will) you (?:please )?)?(?:i(?:'d| would) like you to |i want you to |you (?:should"
    r"|must|need to) )?"
    r"(?:remember(?: this| the following)?(?=[\s:,—-])(?:(?: for (?:later|next time|the future"
    r"|future sessions))?(?:\s+that\b|\s*[:,—–-])"
    r"|(?=\s+(?:i|i'm|i've|my|we|we're|our|never|always|not to|don't|do not)\b)|(?=\s+to\s+(?:always|never)\b)"
    r"|(?=\s+to\s+\w+.*\b(?:before|after|when(?:ever)?|every|each|in future|never|always)\b))"
    r"|(?:please )?(?:save|add|store|put|write) (?:this |that |it )?(?:to|in|into) (?:your "
    r"|the )?(?:long.term )?memory(?: that|\s*[:,—–-])"
    r"|(?:make|take) a (?:mental )?note(?: that| of this| of it)?\s*(?:[:,—–-]|(?=\s))"
    r"|for (?:(?:your|the) )?(?:future reference|the record going forward)[,:—–-]?"
    r"|memori[sz]e(?: that|\s*:))\s*(?P<what>.{6,})$",
    ANY,
)
WEAK: Final = re.compile(
    r"(?:(?:keep|bear) in mind(?: that)?|don'?t forget(?: that)?|just so you know|fyi|heads[- ]up|for context"
    r"|note that)[\s,:—–-]+(?P<what>.{6,})$",
    ANY,
)
FROM_NOW: Final = re.compile(
    r"(?:from (?:now|here|this point) on(?:wards?)?|going forward|in (?:the )?future|next time"
    r"|henceforth)\b[\s,:—–-]*(?P<what>.{6,})$",
    ANY,
)
ENDS_FROM_NOW: Final = re.compile(
    r"^(?P<what>.{6,}?)[\s,]+(?:from (?:now|here) on|going forward|in (?:the )?future|next time|at all times"
    r"|every time|each time)[.!]*$",
    ANY,
)

# -- rules
VERB: Final = (
    r"(?:stick|look|limit|batch|group|separate|split|mark|link|use|run|write|add|put|keep|make|ask|check|commit|push"
    r"|create|include|name|prefer|avoid|format"
    r"|test|lint|explain|show|tell|give"
    r"|answer|reply|respond|summari[sz]e|start|begin|end|leave|remove|delete|rebase|squash|merge|sign|document"
    r"|update|edit|touch|mock|import"
    r"|install|deploy|force|amend|skip|call|read|quote|cite|log|print|throw|raise|return|wrap|assume|guess"
    r"|apologi[sz]e|say|set|pin|do|go|work"
    r"|send|open|close|verify|confirm|be|treat|translate|spell|round|store|change|modify|generate|suggest"
    r"|propose|stop|wait|let|have|try|hard-?code"
    r"|restart|drop|catch|expose|share|rely|block|disable|enable|bump|upgrade|downgrade|publish|tag|release|cache|copy"
    r"|mix|break|nest|inline|abbreviate|define|declare|handle|validate|escape|encrypt|review|approve|fix|reuse|reply)"
)
RULE: Final = re.compile(
    rf"(?:(?:in|for|on|with) [\w -]{{2,40}},\s*)?(?:(?:you|we|i want you to|i need you to"
    rf"|i'd like you to)\s+)?(?:(?:should|must|have to|need to)\s+)?"
    rf"(?:always|never|only ever|don'?t ever|do not ever)\s+(?:\w+ly\s+)?{VERB}\b.{{3,}}$"
    r"|(?:always|never) (?!(?:mind|true|false|null|none|the|an?|this|that|it|there|in|on|at|so|been|had|was|is|again"
    r"|got|seen|happened|worked|tried|knew|thought|heard|\w+(?:ing|ed|[^su]s))\b)[a-z]{3,}\b .{3,}$",
    ANY,
)
DONT: Final = re.compile(
    rf"(?:you (?:should|must) ?n[o']t|do not|don'?t|avoid|stop|no more|please don'?t"
    rf"|quit)\s+(?:\w+ly\s+)?(?:{VERB}|\w+ing)\b.{{3,}}$",
    ANY,
)
DURABLE: Final = re.compile(
    r"\b(?:ever|again|any ?more|all the time|every (?:time|\w+)|each (?:time|\w+)|unless|without (?:asking|my"
    r"|checking|telling)"
    r"|in (?:this|our) (?:repo|repository|project|codebase|team|company)|by default|in general"
    r"|in (?:the )?future|on (?:main|master|production|prod)\b"
    r"|in (?:tests|reviews|commit messages|production|prod|your (?:replies|answers|responses|commits|code))"
    r"|when(?:ever)? (?:you|we|i)\b)",
    ANY,
)
STOPPED: Final = re.compile(
    r"(?:please )?(?:stop|not|quit|no more) (?:adding|writing|using|putting|creating|making|summari[sz]ing"
    r"|apologi[sz]ing|asking"
    r"|saying|repeating|explaining"
    r"|starting|ending|telling|wrapping|guessing|mocking)\b.{3,}$",
    ANY,
)
WORKING: Final = (
    r"(?:write|touch|change|edit|add|commit|create|run|review|answer|reply|explain|fix|refactor|make|rename|delete"
    r"|push|name|generate|finish|merge|deploy|release|plan|work|propose|document|translate)"
)
WHENEVER: Final = re.compile(
    rf"(?:(?:whenever|every time|each time|any ?time) (?:you|we|i) |when (?:you"
    rf"|we) {WORKING}\b).{{2,80}}?,\s*(?:please |you should |always |never |do not |don't )*{VERB}\b.{{3,}}$",
    ANY,
)
WE: Final = re.compile(
    r"(?:(?:in|at|on) (?:this|our) (?:repo|repository|project|codebase|team|company|org),? )?we (?:always|never"
    r"|only|don'?t|do not|prefer to|prefer|avoid|use)\s+\w.{3,}$",
    ANY,
)
WE_USE: Final = re.compile(
    r"\bwe use\b.+\b(?:not|instead of|rather than|over|never|for all|everywhere|exclusively|by convention)\b", ANY
)
# What opens a rule without being part of it; some openings say that it holds for good.
OPENS_RULE: Final = re.compile(
    r"(?:make sure(?: that)?(?: to)?|be sure to|please(?: be sure to)?|try to|you (?:really )?(?:should|must|need to)"
    r"|i(?:'d| would) (?:really )?(?:appreciate|like) it if you(?:'d| would| could)?|it would be (?:great|nice|good"
    r"|better) if you(?:'d| would| could)?|i(?:'d| would)? (?:want|need|like) you to|(?:could|can|would|will) you"
    r"(?: please| mind)?)\s+(?=\w)",
    ANY,
)
AS_A_RULE: Final = re.compile(
    r"(?:as a (?:general )?rule|rule of thumb|house rule|(?:our|my) rule(?: here)? is(?: that)?|by convention"
    r"|(?:our|the) convention (?:here )?is(?: that| to)?|our policy is(?: that| to)?|general(?:ly)? rule"
    r"|make it a habit to|get (?:in|into) the habit of|as standard practice)\b[\s,:—–-]*"
    r"(?P<what>.{6,})$",
    ANY,
)
NONE_OF: Final = re.compile(
    r"no (?!(?:problem|worries|idea|need|way|one|longer|matter|doubt|rush|changes?|errors?|luck"
    r"|more (?:\w+ )?(?:errors?"
    r"|failures?))\b)[\w'/ -]{3,60}\b(?:in|on|for|at|with|without|from|inside)\b.{3,}$",
    ANY,
)
EVER: Final = re.compile(r"\b(?:ever|please|anywhere|at all|any ?more|period)\b", ANY)
HERE_ALWAYS: Final = re.compile(
    r"(?:(?:in|on|at|across|throughout) (?:this|our|all our|the whole) (?:repo|repository|project|codebase|code base"
    r"|team|company|org|services?|shop)s?|around here|over here|on (?:this|our) team),? .{3,80}?\b(?:always|never|only"
    r"|must|has to|have to|should|is (?:forbidden|banned|not allowed)|are (?:forbidden|banned|not allowed)|go(?:es)? to"
    r"|go(?:es)? through)\b.{2,}$",
    ANY,
)
SO_DONT: Final = re.compile(
    r"we(?!'ll| will| should| could| can)\b.{4,90}?,\s*so (?:please |you )?(?:don'?t|do not|never|always|no need to"
    r"|keep|use|avoid|leave|make sure)\b.{3,}$",
    ANY,
)
YOU_KEEP: Final = re.compile(r"you(?:'re| are)? (?:keep|constantly) (?:on )?\w+ing\b.{4,}$", ANY)
STOP_IT: Final = re.compile(
    r"\b(?:stop|skip|don'?t do|do not do|no need|leave (?:it|that) out|please don'?t)\b|\bin (?:the )?future\b", ANY
)
ONLY_WANT: Final = re.compile(
    r"i (?:would |'d |really )?(?:only|just) (?:ever )?(?:want|accept|trust|like|merge)\b.{4,}\b(?:(?:anything"
    r"|everything"
    r"|nothing) else|never|not)\b.*$",
    ANY,
)
DONT_WANT: Final = re.compile(
    r"i (?:really )?(?:don'?t|do not|never) (?:ever )?want (?:you|to see|any|us|anything|anybody|anyone)\b.{4,}$", ANY
)
ALL_MUST: Final = re.compile(
    r"(?:everything|anything|all (?:new |our |public )?\w+|every (?:new |public )?\w+|each (?:new )?\w+|nothing"
    r"|no (?:new )?\w+|new \w+s)\b.{0,60}?\b(?:needs?|must|has to|have to|should|goes? through|gets?|may)\b.{3,}$",
    ANY,
)
POLICY: Final = re.compile(
    r"\b(?:policy|house rule|team rule|our rule|convention|agreed on|as agreed|no exceptions?|without exception)\b", ANY
)
IN_CASE: Final = re.compile(
    r"(?:if|when|whenever|where|in case|as soon as) (?!(?:it|this|that|the|he|she|they|i|there|there's"
    r"|you(?! are|'re))\b).{4,80}?, (?:please |always "
    r"|just |then )*"
    r"(?:tell|ask|warn|let|check with|ping|stop|wait|show|prefer|say|don'?t|do not|never)\b.{3,}$",
    ANY,
)
ASK_FIRST: Final = re.compile(
    r"(?!.*\byou (?:need|want|have|like|ever)\b)(?:always |please )*(?:ask|check with|tell|warn|consult|talk to"
    r"|run it by|let) (?:me|us)\b.{0,20}?\b(?:before"
    r"|first"
    r"|whenever|every time|if you(?:'re| are))\b.{3,}$",
    ANY,
)
UNLESS_I: Final = re.compile(
    r"\b(?:unless|until) (?:i|we) (?:say|ask|tell|explicitly|told|said)\b|\bwithout (?:asking|telling"
    r"|checking with) (?:me|us)\b",
    ANY,
)
ENDS_ALWAYS: Final = re.compile(r"^(?!.*\b(?:is|are|was|were|it|he|she|why|has|have)\b).{8,100}, always[.!]*$", ANY)
BARE_NO: Final = re.compile(
    r"(?:no+|nope|nah|wrong|stop|hold on|wait)?[\s,!.]*(?:not like (?:that|this)|that'?s (?:wrong|not right|not it)"
    r"|wrong (?:approach|way|idea))[.!]*$",
    ANY,
)
CONTRAST: Final = re.compile(r"^(?!i\b|you\b).{6,}\b(?:,\s*not|instead of|rather than|never)\b.{3,}$", ANY)
KEEP_THAT: Final = re.compile(
    r"^(?P<what>.{10,}?)[,;.—–-]+ (?:so )?(?:please )?(?:keep (?:doing|at|it up|working)|do (?:it )?(?:that|this|it))"
    r" (?:that|this|like that|that way|this way|again)[.!]*$",
    ANY,
)
OTHERS_WANT: Final = re.compile(
    r"(?:our|the) (?:reviewers?|maintainers?|team|team lead|lead|qa|linter|style guide) (?:wants?|expects?|prefers?"
    r"|insists? on|hates?|requires?|likes?|rejects?)\b.{6,}$",
    ANY,
)
FOR_ALL: Final = re.compile(
    rf"(?:for|in|with|on) (?:all|every|any|each|new) [\w -]{{3,40}},? (?:please |always |only |never "
    rf"|don'?t )*{VERB}\b.{{3,}}$",
    ANY,
)
GENERAL: Final = re.compile(r"\b(?:the|this|that|these|those|here|it|them|its|an?|your last|first|next)\b", ANY)
# -- corrections
NO: Final = re.compile(
    r"(?:no+|nope|wrong|nah|not (?:like )?that|that'?s not how (?:we|i|things)\b[^:,;.]{0,40}"
    r"|that'?s (?:wrong|not (?:right|what i (?:want|asked|meant)))"
    r"|stop)\b[\s,.:;!—–-]+(?P<rest>.{6,})$",
    ANY,
)
INSTEAD: Final = re.compile(
    r"(?:(?:please |you should |we )?(?:use|prefer|write|run|call it|say|name it)\b.+\b(?:instead of"
    r"|rather than|not|over|never)\b.+"
    r"|not\s+.{2,80}?[:;,—–-]+\s*(?:use|it's|it is|we use|prefer|write|run|call it|but)\b.+"
    r"|don'?t use .{2,80}?[:;,.—–-]+\s*(?:use|prefer)\b.+)$",
    ANY,
)
# -- confirmations
PRAISED: Final = re.compile(
    r"(?:that worked (?:well|great|nicely)|exactly right|spot on|good (?:call|job)|nicely done|yes|yeah|yep|yup"
    r"|perfect|great|exactly|nice|good|excellent|love it|awesome|thanks?(?: you)?|right"
    r"|well done)\b[\s,.:;!—–-]+(?P<rest>.{6,})$",
    ANY,
)
RIGHT_CALL: Final = re.compile(
    r"^(?:i (?:think|agree)(?: that)? )?(?P<what>.{6,160}?) (?:was|is|were|are) (?:exactly |really |absolutely "
    r"|definitely )?(?:the right|the correct|a good|a great|the best|exactly the right"
    r"|(?:exactly )?(?:what|how) i (?:want(?:ed)?|need(?:ed)?|like))"
    r"(?: (?:call|choice|way|approach|move|thing to do|idea|decision))?(?P<more>.*)$",
    ANY,
)
KEEP: Final = re.compile(
    r"(?:please )?(?:keep|continue) (?!(?:going|it up|trying|working|on|running|reading|looking"
    r"|debugging)\b)\w+ing\b.{3,}$",
    ANY,
)
I_LIKE: Final = re.compile(
    r"i (?:really )?(?:like|love|appreciate) (?:how|that|the way|it when|when) (?:you|we)\b.{4,}$", ANY
)
POLITE: Final = re.compile(
    r"(?:(?:please|also|and|ok(?:ay)?|hey|btw|so|oh|thanks|great|yes|one more thing|by the way)\b[\s,:;.!—–-]*)+", ANY
)
