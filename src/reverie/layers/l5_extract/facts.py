"""What gives a fact away: the words by which people say who they are, what goes on and where things are."""

from __future__ import annotations

import re
from typing import Final

from .patterns import ANY, URL

__all__ = [
    "ASKS",
    "GOING",
    "KEPT_AT",
    "LIVES",
    "LOOK_THERE",
    "NOW",
    "OWNS",
    "PREFER",
    "REASONED",
    "STATES",
    "TRACKED",
    "URL_IS",
    "WHO",
    "WHO_CASED",
]

# -- preferences and who they are
PREFER: Final = re.compile(
    r"(?:personally,? )?i (?:(?:always|usually|generally|strongly|much|really|would|still|also)\s+)*(?:prefer"
    r"|'d rather|would rather|hate|dislike|can'?t stand)\b.{4,}$"
    r"|i'?d (?:rather|prefer)\b.{4,}$|my (?:preference|preferred \w+|favou?rite \w+) (?:is|are)\b.{3,}$"
    r"|i (?:don'?t like|do not like) (?:it when|when|emojis?|\w+ing)\b.{2,}$"
    r"|i (?:really )?(?:like|love|enjoy) (?:my )?(?:explanations?|answers?|repl(?:y|ies)|responses?|code|diffs?"
    r"|summar(?:y|ies)"
    r"|reviews?|commits?|names?|tests?|docs?|examples?)\b .{5,}$"
    r"|i (?:want|need) (?:your |my )?(?:explanations|answers|replies|responses|summaries) .{5,}$"
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
    rf"\bi(?:'m| am) (?:currently |also |actually |basically |mostly |mainly |not |really )*(?:an? "
    rf"|the )(?:[\w+#.-]+[\s-]){{0,5}}?{ROLE}\b"
    r"|\bi(?:'m| am) (?:(?:very|quite|pretty|completely|totally|fairly|relatively|still) )?(?:new to"
    r"|not (?:very |too |that |really )?familiar with|unfamiliar with|experienced (?:in|with)|fluent in"
    r"|responsible for|in charge of|learning|based in|colou?r[- ]?blind|dyslexic|deaf|left-handed)\b"
    r"|\bi(?:'ve| have) spent (?:the (?:last|past) |over |about |most of )?.{2,30}\b(?:years?|decades?|months?"
    r"|career)\b"
    r"|\bi(?:'ve| have) (?:been )?(?:a |an )?\w+(?:ing)?\b.{0,60}\bfor (?:\d+|two|three|four|five|six|seven"
    r"|eight|nine|ten|\w+teen|twenty|thirty|a decade|over|many|more than|about|almost|nearly|the (?:last"
    r"|past))\b.{0,20}(?:years?|decades?"
    r"|months)"
    r"|\bi(?:'m| am|'ve| have|'m not| don'?t| can'?t| only| use| work| live| find"
    r"| tend to)\b.{3,120}?,? so (?:please |you can "
    r"|you should |just )*(?:keep|use|explain|write|don'?t|avoid|skip|assume|give|answer|spell|feel free|go easy|be"
    r"|stay|make)\b"
    r"|\bi (?:maintain|own|lead|manage|head|look after|co-?own|support|run) (?:the|our|a) (?:[\w-]+ ){0,4}(?:team"
    r"|service"
    r"|group|department|platform|product|infrastructure|company|library|squad|lab|practice|shop|clinic)\b"
    r"|\bi have (?:adhd|dyslexia|autism|tinnitus|rsi|carpal tunnel|low vision|a (?:disability|stutter|background in))\b"
    r"|\bi (?:only |just |recently )*(?:started|began) (?:learning|using|programming|coding|writing|working (?:here"
    r"|at|with))\b"
    r"|\bi (?:only |just |recently )*joined\b.{0,40}\b(?:team|company|project|group)\b"
    r"|\bi(?:'m| am) an? (?:[\w+#-]+ ){1,2}(?:user|speaker|person|veteran)\b"
    r"|\bi (?:studied|majored in|trained as|used to (?:be|work|teach|write))\b|\bi have an? (?:\w+ )?(?:degree|phd"
    r"|master'?s|background)\b"
    r"|\bi don'?t (?:really )?know [\w+#. ]{2,30}? (?:very|that|too|so) well\b|\bi(?:'m| am) (?:not )?(?:very "
    r"|really |pretty )?"
    r"(?:bad|terrible|good|great|weak|rusty|strong|comfortable|fluent) (?:at|with|in)\b"
    r"|\bi(?:'m| am) on (?:windows|linux|macos|a mac|ubuntu|arch|nixos|wsl)\b|\bi (?:study|teach) \w+ (?:at|in|to)\b"
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
WHO_CASED: Final = re.compile(
    r"\b[Cc]all me [A-Z]\w+|\b[Ii] go by [A-Z]\w+|\b[Ii](?:'m| am) in [A-Z]\w+(?: [A-Z]\w+)?,? (?:so (?:my|it|that"
    r"|we|your|please|time)|which is|time)"
    r"|\b[Mm]y name is [A-Z]\w+|\b[Ii](?:'m| am) [A-Z][a-z]+ from [A-Za-z]+"
)
# -- what goes on
GOING: Final = re.compile(
    r"\b(?:deadline|due|freez(?:e|es|ing)|releas(?:e|es|ed|ing)|launch(?:es|ed|ing)?|ship(?:s|ping)?|demo"
    r"|go(?:es|ing)? live|go-live|cut(?:s|ting)?|cutover"
    r"|migrat(?:e|es|ing|ion)|audit|sunset(?:s|ting)?|deprecat(?:e|ed|ing)|shut(?:s|ting)? down"
    r"|end[- ]of[- ]life|switch(?:es|ing)? (?:over|to)|mov(?:e|es|ing) to|roll(?:s|ing)? out"
    r"|(?:switched|turned|shut) off|goes away|retired|decommissioned|disabled|discontinued|tak(?:es|ing) over"
    r"|auditing|closes|opens|hire[sd]?|leaves"
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
    r"\b(?:is|are|was|were|gets?|'s|'re|will|won'?t|has|have|had|must|need|needs|starts?|begins?|ends?|goes|go"
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
    r"|\b(?:is|are|was|were) (?:being )?(?:driven|required|mandated|requested|demanded|motivated|ordered"
    r"|forced) by\b.{4,}"
    r"|\bwe(?:'ve| have)? (?:decided|agreed) (?:to|not to|against|on)\b|\bwe(?:'re| are) (?:migrating|moving|switching"
    r"|rewriting|replacing|phasing out|sunsetting|deprecating|consolidating|ripping out)\b.{4,}",
    ANY,
)
OWNS: Final = re.compile(
    r"^(?:@?[A-Z][\w.-]+(?: [A-Z]\w+)?|[Tt]he \w+ team|[Oo]ur \w+ team)(?: from [\w ]{2,30})? (?:owns"
    r"|is (?:responsible|the (?:owner|contact|point person|dri|maintainer)) (?:for|of)|is in charge of"
    r"|maintains|handles|is on (?:\w+ )?(?:leave|vacation|holidays?|call|pto)|is (?:out|away|off|back)|leaves (?:us"
    r"|the team|the company)"
    r"|(?:joins|looks after|leads|runs|takes over) (?:the|our|us)(?= ))\b.{3,}"
)
# -- where things are
SYSTEM: Final = (
    r"(?:linear|jira|notion|confluence|grafana|datadog|sentry|slack|trello|asana|github projects?|gitlab"
    r"|google (?:docs?|drive|sheets?)|figma|miro|pagerduty|kibana|looker|metabase|tableau|airtable"
    r"|sharepoint|zendesk|bugzilla|youtrack|phabricator|gerrit|jenkins|buildkite|circleci|argo(?:cd)?|vault"
    r"|1password|bitwarden|discord|teams|clickup|monday\.com|shortcut|prometheus|new relic|honeycomb|splunk"
    r"|opsgenie|backstage|artifactory|snowflake|bigquery"
    r"|launchdarkly|optimizely|statsig|dropbox|onedrive|shared drive|file share|intranet|company wiki|mailing list"
    r"|google doc|hubspot|salesforce|intercom|segment|amplitude|mixpanel|stripe dashboard|readme\.io|swagger ?hub"
    r"|postman"
    r"|coda|obsidian|basecamp|gitea|sonarqube|codecov|rollbar|bugsnag|elastic|loki|jaeger|statuspage)"
)
THING: Final = (
    r"(?:dashboard|board|wiki|runbook|playbook|docs?|documentation|design docs?|specs?|specification|roadmap"
    r"|tracker|tickets?|issues?|bugs?|channel|calendar|spreadsheet|sheet|style ?guide|guide|handbook"
    r"|status page|logs|metrics|alerts|traces"
    r"|mock-?ups|designs|ci|pipelines?|builds?|artifacts|staging|production|registry|changelog|post-?mortems?"
    r"|incidents?|credentials|secrets|on-?call|schedule|minutes|notes|reports?|backlog|project plan"
    r"|api reference|portal|data|errors?|requirements|feedback|release notes)"
)
CHANNEL: Final = r"#[a-z][\w-]{2,}"
HOST: Final = r"\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:internal|corp|intra|lan|com|io|net|org|dev|app|example)(?:/\S*)?"
PLACE: Final = rf"(?:{URL.pattern}|\b{SYSTEM}\b|{CHANNEL}|{HOST})"
LIVES: Final = re.compile(
    rf"\b{THING}s?\b[^.;]{{0,60}}?\b(?:is|are|lives?|sits?|can be found|stays?|resides?|go(?:es)?|belongs?"
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
KEPT_AT: Final = re.compile(
    rf"\b(?:our|the|all|my|every)\s[\w/' -]{{2,50}}?\s(?:lives?|sits?|resides?|(?:is|are|gets?) (?:all )?(?:kept"
    rf"|documented"
    rf"|tracked|hosted|stored|described|written up|maintained|recorded|collected|archived"
    rf"|managed))\b[^;]{{0,60}}?{PLACE}"
    rf"|\b(?:you(?:'ll| will| can) find|there(?:'s| is) an? [\w -]{{3,40}})\b[^;]{{0,60}}?\b(?:at|in|on"
    rf"|under)\b[^;]{{0,30}}?{PLACE}"
    rf"|^for (?:the |our |all |any )?[\w' -]{{3,50}}, (?:see|check|use|look at|go to|ask in|consult"
    rf"|read)\b[^;]{{0,40}}?{PLACE}"
    rf"|\b[\w' -]{{3,40}} go(?:es)? (?:to|in|into) {CHANNEL}"
    rf"|^(?:the |our |all |my )?[\w' -]{{3,50}}? (?:is|are) (?:all )?(?:in|on|at|under) (?:the |our )?{PLACE}"
    rf"|\b(?:we|the team|they|everyone|everybody|ops|(?:the|our) \w+ team) (?:all |always )?(?:keeps?|tracks?"
    rf"|stores?|documents?"
    rf"|files?|puts?|posts?|plans?|collects?)\b[^;]{{0,50}}?{PLACE}"
    rf"|^if you (?:need|want|are looking for|have questions)\b[^;]{{3,100}}?{PLACE}"
    rf"|\b(?:questions?|requests?|problems?|incidents?|bugs?|outages?|feature requests?|ideas?"
    rf"|suggestions?)\b[^.;]{{0,60}}?"
    rf"\b(?:asked|go(?:es)?|raised|reported|posted|sent|belongs?|filed|discussed|announced)\b[^.;]{{0,40}}?{PLACE}"
    rf"|\b(?:on-?call|ops|support|the \w+ team|everybody|everyone|we) (?:all )?(?:watch(?:es)?|monitors?|looks? at"
    rf"|follows?)\b"
    rf"[^;]{{0,40}}?{PLACE}",
    ANY,
)
URL_IS: Final = re.compile(
    rf"{URL.pattern}\s+(?:is|has|shows|holds|contains|lists)\s+(?:the|our|where|what|all|my|an?)\b", ANY
)
LOOK_THERE: Final = re.compile(
    rf"^(?:check|see|look (?:at|in)|consult|ask|ask in|go to|ping|post (?:in|to)|write to"
    rf"|contact)\b[^.;]{{0,60}}(?:{URL.pattern}|\b{SYSTEM}\b"
    rf"|#[a-z][\w-]{{2,}})[^.;]{{0,60}}\b(?:if you (?:need|want|are)|for (?:how|what|why|who|when|where|more|all"
    rf"|(?:the )?(?:context|background|details|history|design))|(?:when(?:ever)?|if) (?:you|something|a|the"
    rf"|anything)|before (?:touching|changing|editing))\b",
    ANY,
)
