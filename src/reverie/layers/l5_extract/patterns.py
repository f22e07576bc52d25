"""What gives a sentence away: the words by which people state rules, corrections, who they are, dates and places.

Every pattern is written for precision: what is about the task at hand should match none of them.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "ANY",
    "ASKS",
    "BIDDING",
    "CODE",
    "DONT",
    "DURABLE",
    "ENDS_FROM_NOW",
    "FROM_NOW",
    "GOING",
    "HERE",
    "INSTEAD",
    "I_LIKE",
    "KEEP",
    "LEAD",
    "LIVES",
    "LOOK_THERE",
    "MOMENTARY",
    "NO",
    "NOW",
    "OWNS",
    "POINTED",
    "POLITE",
    "PRAISED",
    "PREFER",
    "REASONED",
    "REQUESTS",
    "RIGHT_CALL",
    "RULE",
    "STATES",
    "STOPPED",
    "STRONG",
    "TRACKED",
    "URL",
    "URL_IS",
    "VERB",
    "WE",
    "WEAK",
    "WE_USE",
    "WHEN",
    "WHENEVER",
    "WHO",
    "WHO_CASED",
    "WHY",
    "WHY_BESIDE",
    "WHY_NEXT",
]

ANY: Final = re.IGNORECASE
LEAD: Final = re.compile(
    r"(?:(?:please|pls|also|and|but|so|ok(?:ay)?|hey|hi|btw|by the way|oh|well|right|great|thanks?(?: you)?|fyi"
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
    r"|the (?:above|below|following|attached|previous|last|current) \w+|line \d+|step \d+|as (?:above|below)"
    r"|in your (?:answer|reply|response) (?:to this|here)|never ?mind|always (?:been|has|had|was|is|the case))\b",
    ANY,
)
# One of several things that both can see, or something that was just named.
POINTED: Final = re.compile(
    r"\bthe (?:first|second|third|last|other|latter|former) (?:\w+|$)|\bthe one\b|\b(?:option|version"
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
    r"|[{};]\s|=>|==|\w+\[\w*\]",
)
URL: Final = re.compile(r"https?://[^\s<>\"')\]]+", ANY)
WHY: Final = re.compile(
    r"[\s,;:—–(-]+\b(?:because|since(?! (?:\d|last|yesterday|then))|as (?=it |that |we |the |this |they |I )|so that"
    r"|otherwise|the reason (?:is|being)(?: that)?|due to|given that|or else)\b[\s,:]*(?P<why>.{8,300})$",
    ANY,
)
WHY_BESIDE: Final = re.compile(
    r",\s+(?P<why>(?:our|we|we've|we're|it|it's|they|nobody|everyone|people|i (?:can|can't|hate|find|need"
    r"|read))\b(?:\s+\S+){2,40})$",
    ANY,
)
BIDDING: Final = re.compile(
    r"(?:please |in [\w -]{2,40}, )?(?:always|never|don'?t|do not|use|stop|avoid|prefer|keep|you (?:should"
    r"|must))\b",
    ANY,
)
WHY_NEXT: Final = re.compile(
    r"(?:because|since|the reason(?: is)?(?: that)?|that's because|this is because|it's because|otherwise|why:"
    r"|reason:"
    r"|last time|we got burned|we've been burned|we were burned|it (?:broke|breaks|hides|causes|caused|cost|confuses)"
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
    r"|(?=\s+to\s+\w+.*\b(?:before|after|when(?:ever)?|every|each|in future)\b))"
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
    r"(?:use|run|write|add|put|keep|make|ask|check|commit|push|create|include|name|prefer|avoid|format"
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
    rf"(?:always|never|only ever|don'?t ever|do not ever)\s+(?:\w+ly\s+)?{VERB}\b.{{3,}}$",
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
    r"(?:please )?stop (?:adding|writing|using|putting|creating|making|summari[sz]ing|apologi[sz]ing|asking"
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
# -- corrections
NO: Final = re.compile(
    r"(?:no+|nope|wrong|nah|not (?:like )?that|that'?s (?:wrong|not (?:right|what i (?:want|asked|meant)))"
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
    r"(?:yes|yeah|yep|yup|perfect|great|exactly|nice|good|excellent|love it|awesome|thanks?(?: you)?|right"
    r"|well done)\b[\s,.:;!—–-]+(?P<rest>.{6,})$",
    ANY,
)
RIGHT_CALL: Final = re.compile(
    r"^(?:i (?:think|agree)(?: that)? )?(?P<what>.{6,160}?) (?:was|is|were|are) (?:exactly |really |absolutely "
    r"|definitely )?(?:the right|the correct|a good|a great|the best|exactly the right"
    r"|exactly what i (?:want(?:ed)?|need(?:ed)?|like))"
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
# -- preferences and who they are
PREFER: Final = re.compile(
    r"(?:personally,? )?i (?:(?:always|usually|generally|strongly|much|really|would|still|also)\s+)*(?:prefer"
    r"|'d rather|would rather|hate|dislike|can'?t stand)\b.{4,}$"
    r"|i'?d (?:rather|prefer)\b.{4,}$|my (?:preference|preferred \w+|favou?rite \w+) (?:is|are)\b.{3,}$"
    r"|i (?:don'?t like|do not like) (?:it when|when|emojis?|\w+ing)\b.{2,}$"
    r"|i (?:like|want|need) (?:my )?(?:short|concise|brief|terse|detailed|long) .{3,}$|i (?:always|never"
    r"|usually|mostly|only|mainly) (?:use|work|write|read|code|develop|type)\b.{3,}$",
    ANY,
)
ROLE: Final = (
    r"(?:engineer|developer|programmer|scientist|designer|student|manager|researcher|analyst|architect|teacher"
    r"|professor|lecturer|founder|cto|ceo|cfo|vp"
    r"|lead|intern|consultant|contractor|freelancer|writer|author|journalist|lawyer|attorney|doctor|physician"
    r"|nurse|biologist|chemist|physicist"
    r"|mathematician|statistician|economist|accountant|administrator|admin|sysadmin|sre|devops|dba|pm"
    r"|product owner|tester|beginner|newcomer|novice|postdoc"
    r"|phd(?: student| candidate)?|maintainer|musician|artist|librarian|translator|linguist|pilot|hobbyist"
    r"|data engineer|technician|operator)"
)
WHO: Final = re.compile(
    rf"\bi(?:'m| am) (?:currently |also |actually |basically |mostly |mainly )?(?:an? "
    rf"|the )(?:[\w+#.-]+[\s-]){{0,5}}?{ROLE}\b"
    r"|\bi(?:'m| am) (?:(?:very|quite|pretty|completely|totally|fairly|relatively|still) )?(?:new to"
    r"|not (?:very |too |that |really )?familiar with|unfamiliar with|experienced (?:in|with)|fluent in"
    r"|responsible for|in charge of|learning|based in|colou?r[- ]?blind|dyslexic|deaf|left-handed)\b"
    r"|\bi(?:'ve| have) (?:been )?(?:a |an )?\w+(?:ing)?\b.{0,60}\bfor (?:\d+|two|three|four|five|six|seven"
    r"|eight|nine|ten|over|many|more than|about|almost|nearly|the (?:last|past))\b.{0,20}(?:years?|decades?"
    r"|months)"
    r"|\bi (?:work|study|teach) (?:at|for|in|as|on the)\b|\bi live in\b|\bi(?:'ve| have) never (?:used|written"
    r"|touched|worked with|programmed|done)\b"
    r"|\bi don'?t (?:really )?(?:know (?:much|anything) about|speak|know any|write much)\b"
    r"|\bthis is my first (?:time (?:with|using|writing|touching)|\w+ project)"
    r"|\bmy (?:name|role|job|job title|title|background|time ?zone|native language|first language|mother tongue"
    r"|(?:main |long-term )?goal|day job|pronouns|team|specialty|speciality|expertise)(?: (?:here|this (?:year"
    r"|month|quarter)|at work))? (?:is|isn'?t|are)\b"
    r"|\bcall me [A-Z]\w+|\b(?:english|german|french|spanish) (?:is not|isn'?t) my (?:first|native)|\bi speak\b"
    r"|\bi use (?:an? )?(?:vim|neovim|emacs|vs ?code|fish|zsh|nushell|a mac|macos|windows|linux|nixos|arch"
    r"|screen reader|dvorak|colemak)\b",
    ANY,
)
WHO_CASED: Final = re.compile(r"\b[Cc]all me [A-Z]\w+")
# -- what goes on
GOING: Final = re.compile(
    r"\b(?:deadline|due|freez(?:e|es|ing)|releas(?:e|es|ed|ing)|launch(?:es|ed|ing)?|ship(?:s|ping)?|demo"
    r"|go(?:es|ing)? live|go-live|cut(?:s|ting)?|cutover"
    r"|migrat(?:e|es|ing|ion)|audit|sunset(?:s|ting)?|deprecat(?:e|ed|ing)|shut(?:s|ting)? down"
    r"|end[- ]of[- ]life|switch(?:es|ing)? (?:over|to)|mov(?:e|es|ing) to|roll(?:s|ing)? out"
    r"|out of (?:the )?office|on (?:vacation|leave|holiday|parental leave|pto)|away|review is|meeting"
    r"|presentation|conference|kick[- ]?off|offsite|sprint|milestone|expires?|renew(?:s|al)?|maintenance"
    r"|hand(?:s|ing)? over|starts?|begins?|ends?|outage|incident)\b",
    ANY,
)
NOW: Final = re.compile(
    r"\b(?:today|tonight|yesterday|last (?:week|month|quarter|year|\w+day)|(?:\w+|a (?:few|couple of)) (?:days?"
    r"|weeks?|months?|years?) ago)\b",
    ANY,
)
STATES: Final = re.compile(
    r"\b(?:is|are|was|were|'s|'re|will|won'?t|has|have|had|must|need|needs|starts?|begins?|ends?|goes|go"
    r"|launches|ships|expires?|closes|opens|moves?|cuts?|falls|happens)\b",
    ANY,
)
ASKS: Final = re.compile(
    r"^(?:let'?s|let us|i'?ll|i will|i'?m going to|we'?ll see|can|could|would|will you|please|do|does|did|is"
    r"|are|what|when|where|why|how|who|fix|add|make|write|run|create|remind"
    r"|update|change|finish|implement|check|look|see|try|use|put|set|move|remove|delete|give|show|tell|help"
    r"|schedule|send|build|deploy|test|commit|push|merge|rebase|open|close|generate|refactor)\b",
    ANY,
)
REASONED: Final = re.compile(
    r"\bthe reason (?:why )?(?:we|i|for)\b.{6,}\b(?:is|was)\b|^(?:legal|compliance|security|finance|marketing"
    r"|management|the (?:client|customer|board|auditors?|regulators?)|product|our (?:client|customer|ceo|cto"
    r"|lawyers?))\b.{0,40}"
    r"\b(?:flagged|requires?|required|wants?|wanted|asked|asks|insists?|demands?|decided|needs|mandated)\b.{6,}"
    r"|\bwe(?:'ve| have)? decided (?:to|not to|against|on)\b|\bwe(?:'re| are) (?:migrating|moving|switching"
    r"|rewriting|replacing|phasing out|sunsetting|deprecating|consolidating|ripping out)\b.{4,}",
    ANY,
)
OWNS: Final = re.compile(
    r"^(?:@?[A-Z][\w.-]+(?: [A-Z]\w+)?|[Tt]he \w+ team|[Oo]ur \w+ team)(?: from [\w ]{2,30})? (?:owns"
    r"|is (?:responsible|the (?:owner|contact|point person|dri|maintainer)) (?:for|of)|is in charge of"
    r"|maintains|handles|is on (?:leave|vacation|call)|is out)\b.{3,}"
)
# -- where things are
SYSTEM: Final = (
    r"(?:linear|jira|notion|confluence|grafana|datadog|sentry|slack|trello|asana|github projects?|gitlab"
    r"|google (?:docs?|drive|sheets?)|figma|miro|pagerduty|kibana|looker|metabase|tableau|airtable"
    r"|sharepoint|zendesk|bugzilla|youtrack|phabricator|gerrit|jenkins|buildkite|circleci|argo(?:cd)?|vault"
    r"|1password|bitwarden|discord|teams|clickup|monday\.com|shortcut|prometheus|new relic|honeycomb|splunk"
    r"|opsgenie|backstage|artifactory|snowflake|bigquery)"
)
THING: Final = (
    r"(?:dashboard|board|wiki|runbook|playbook|docs?|documentation|design docs?|specs?|specification|roadmap"
    r"|tracker|tickets?|issues?|bugs?|channel|calendar|spreadsheet|sheet|style ?guide|guide|handbook"
    r"|status page|logs|metrics|alerts|traces"
    r"|mock-?ups|designs|ci|pipelines?|builds?|artifacts|staging|production|registry|changelog|post-?mortems?"
    r"|incidents?|credentials|secrets|on-?call|schedule|minutes|notes|reports?|backlog|project plan"
    r"|api reference|portal|data|errors?|requirements|feedback|release notes)"
)
LIVES: Final = re.compile(
    rf"\b{THING}\b[^.;]{{0,60}}?\b(?:is|are|lives?|sits?|can be found|stays?|resides?|go(?:es)?|belongs?"
    rf"|is hosted|are hosted|is kept|are kept)\b[^.;]{{0,40}}?(?:\b(?:at|in|into|to|on|under|here|from)\b"
    rf"|:)?\s*(?:{URL.pattern}|\b{SYSTEM}\b|#[a-z][\w-]{{2,}})",
    ANY,
)
TRACKED: Final = re.compile(
    rf"\b(?:is|are|gets?|we|i)\s*(?:tracked?|filed?|logged?|reported|recorded|documented|managed|discussed"
    rf"|planned|track|file|log|report|document|discuss|plan|keep|manage)\b[^.;]{{0,60}}\b(?:in|on|at|under"
    rf"|via)\b[^.;]{{0,30}}(?:\b{SYSTEM}\b|{URL.pattern}|#[a-z][\w-]{{2,}})",
    ANY,
)
URL_IS: Final = re.compile(
    rf"{URL.pattern}\s+(?:is|has|shows|holds|contains|lists)\s+(?:the|our|where|what|all|my|an?)\b", ANY
)
LOOK_THERE: Final = re.compile(
    rf"^(?:check|see|look (?:at|in)|consult|ask in|go to)\b[^.;]{{0,60}}(?:{URL.pattern}|\b{SYSTEM}\b"
    rf"|#[a-z][\w-]{{2,}})[^.;]{{0,60}}\b(?:if you (?:need|want|are)|for (?:the )?(?:context|background|details"
    rf"|history|design)|when(?:ever)? (?:you|something|a|the)|before (?:touching|changing|editing))\b",
    ANY,
)
POLITE: Final = re.compile(
    r"(?:(?:please|also|and|ok(?:ay)?|hey|btw|so|oh|thanks|great|yes|one more thing|by the way)\b[\s,:;.!—–-]*)+", ANY
)
