"""Words that say the same, words that say little, and kinds of which one excludes another. Data, written by hand.

Two memories that differ in words of one line of ``_SAME`` may be one memory; two that differ in words of one line of
``_KINDS`` say different things of one subject. A word in neither is taken at its face: another word is another fact.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from .lemmas import base_of

__all__ = [
    "CHANGES",
    "LIGHT",
    "NAMED",
    "NEGATIVE",
    "OWNING",
    "SCOPES",
    "SPARE",
    "TURNING",
    "is_family",
    "kind_of",
    "normal",
    "phrases",
]

_SAME: Final = """
    use utilise utilize employ adopt rely leverage
    prefer like love enjoy favor fond keen preference favorite preferred inclined opt | run execute invoke launch
    start begin commence kickoff initiate | finish complete conclude | stop halt cease
    create build produce generate | delete remove erase purge wipe | change modify alter edit amend adjust
    update refresh | fix repair solve resolve mend | check verify validate confirm inspect | show display
    send deliver dispatch | obtain fetch retrieve receive | find locate discover
    keep retain retention preserve store save persist | put place | give provide supply offer
    tell inform notify ping | explain describe clarify | write author compose | contact reach | help assist aid
    need require necessitate | allow permit authorize | break crash fail failure | error exception
    bug defect issue problem ticket | own owner owned responsible accountable belong ownership lead
    manage oversee supervise handle | buy purchase acquire | move migrate relocate shift transfer migration
    replace substitute supersede | release ship rollout publish deploy deployment | merge land | spec specification
    doc documentation document | database db datastore | repository repo codebase | config configuration configure
    directory folder dir | dependency package library lib | function method routine | application app
    server host machine box | environment env | development dev | production prod | staging stage preprod
    authentication auth login signin authenticate | administrator admin | password passphrase | credential secret
    parameter param argument | variable var | message msg | information info | customer consumer
    colleague coworker teammate | manager boss supervisor | team squad crew group | company firm | employee staff
    engineer developer programmer coder | meeting call sync | deadline cutoff | goal objective target aim
    plan intend schedule | reason rationale motive | answer reply response respond
    summary overview recap summarize | comment remark | image picture photo screenshot | page screen
    dashboard board panel | chat conversation | link url address | website site | metric measurement stat
    chart graph plot | alert alarm alerting | incident outage | latency delay lag | fast quick rapid speedy swift
    slow sluggish | big large huge sizable | small little tiny | short brief concise terse succinct compact
    long verbose wordy | detailed thorough comprehensive extensive elaborate | simple easy straightforward
    hard difficult tough | crucial critical vital essential | old legacy outdated | wrong incorrect mistaken
    limit cap ceiling maximum max at_most | minimum min | count number amount quantity | price cost
    expire lapse expiry | certificate cert | occur happen | until till | trigger fire | wait pause
    retry reattempt | format reformat formatter | lint linter | rollback revert undo | backup snapshot
    restore recover | monitor watch observe | track tracker tracking | yearly annual annually
    holiday vacation pto | job role occupation | doctor physician | car automobile | home house | phone telephone
    email mail | laptop notebook | beginner novice newcomer newbie inexperienced
    expert specialist veteran experienced seasoned skilled proficient | know understand familiar knowledge
    learn study | think believe | agree consent | decide determine settle decision
    suggest propose recommend advise | discuss debate | announce declare | freeze lock | optional voluntary
    example sample instance | template boilerplate | blank empty | enough sufficient adequate
    often frequently regularly | immediately instantly promptly straightaway | pipeline workflow | container pod
    endpoint route | column field | identifier id | integer int | boolean bool | terminal console shell
    editor ide | indent indentation | colortheme scheme | styleguide guideline convention | contract agreement
    compliance regulatory | security infosec | finance accounting | invoice bill | shipment delivery
    warehouse depot | supplier vendor | student pupil | teacher instructor | lesson class | hospital clinic
    medicine medication drug | dose dosage | hotel lodging accommodation | trip journey travel | vegetarian veggie
    allergy allergic | child kid | cache caching | scheduler cron crontab cronjob | threshold tolerance
    window timeframe period interval | cluster fleet | upgrade bump | feature functionality capability
    experiment trial pilot | intern trainee | recruit hire | salary wage | budget spend spending allowance
    purple violet | renew renewal | remind reminder | approve approval signoff | rotate rotation
    encrypt encryption | compress compression | validate validation | register registration enroll
    disable deactivate | enable activate | attach append add include | automatic automated automatically automate
    manual manually hand | conference | shut close | open reopen | visit attend | choose pick select
    reside live located housed sit lie found | listen exposed reachable bind bound served | connect talk
    previous prior former | error fault | worker | speak | quiet silent | strict rigorous | rarely seldom
    purpose intent | mistake slip | guard protect safeguard | allergic intolerant | quote cite | collect gather
    split divide | combine join | hide conceal | obsolete deprecated deprecate | request ask demand
    gate block prevent | cause | cheap inexpensive | expensive costly pricey | huge enormous | tool utility
    task chore todo | story | sprint iteration | retro retrospective | roadmap | onboard onboarding
    offboard offboarding | sandbox playground | diagram sketch drawing | spreadsheet sheet | partner affiliate
    basket cart
"""
_PHRASES: Final = """
    pull request=pr | merge request=pr | pull requests=pr | merge requests=pr | prs=pr | continuous integration=ci
    ci/cd=ci | ci pipeline=ci | build server=ci | build pipeline=ci | code base=codebase | data base=database
    time zone=timezone | work flow=workflow | stand-up=standup | stand up meeting=standup
    stand-up meeting=standup | standup meeting=standup | daily standup=standup | daily stand-up=standup
    morning standup=standup | user interface=ui | command line=cli | command-line=cli | unit tests=unittest_kind
    unit test=unittest_kind | end-to-end=e2e | end to end=e2e | front end=frontend | front-end=frontend
    back end=backend | back-end=backend | web site=website | on call=oncall | on-call=oncall | kicks off=start
    kick off=start | kicked off=start | sets up=create | set up=create | rolls out=deploy | roll out=deploy
    rolled out=deploy | go live=deploy | goes live=deploy | going live=deploy | went live=deploy
    signs off=approve | sign off=approve | signed off=approve | sign-off=approve | looks after=own
    look after=own | takes care of=own | take care of=own | in charge of=own | responsible for=own
    belongs to=owned | is run by=owned | point person=owner | point of contact=owner | takes place=happen
    take place=happen | is held=happen | are held=happen | is due=due | gets rid of=remove | get rid of=remove
    roll back=rollback | rolled back=rollback | rolling back=rollback | big fan of=like | a fan of=like
    fond of=like | is into=like | keen on=like | instead of=instead_of | rather than=instead_of
    in place of=instead_of | as opposed to=instead_of | in favor of=replacing | in favour of=replacing
    have to=must | has to=must | had to=must | needs to=must | need to=must | no longer=no_longer
    not any more=no_longer | not anymore=no_longer | as long as=if | as soon as=when | better than=over
    no longer than=at_most | not longer than=at_most | new to=beginner | their own=ownself | its own=ownself
    days long=days | hours long=hours | minutes long=minutes | weeks long=weeks | months long=months
    his own=ownself | her own=ownself | my own=ownself | our own=ownself | your own=ownself
    in order to=to | so that=so | due to=because | owing to=because | on account of=because | because of=because
    given that=because | as well as=and | at least=at_least | no less than=at_least | no fewer than=at_least
    minimum of=at_least | a minimum of=at_least | at most=at_most | no more than=at_most | up to=at_most
    a maximum of=at_most | maximum of=at_most | or more=at_least | or fewer=at_most | or less=at_most
    more than=more_than | over a=more_than_a | greater than=more_than | less than=less_than | fewer than=less_than
    every day=daily_each | each day=daily_each | once a day=daily_each | per day=daily_each | a day=daily_each
    every week=weekly | each week=weekly | once a week=weekly | per week=weekly | a week=weekly
    every month=monthly | each month=monthly | once a month=monthly | per month=monthly | a month=monthly
    every year=yearly | each year=yearly | once a year=yearly | per year=yearly | a year=yearly
    every hour=hourly | each hour=hourly | per hour=hourly | an hour=hourly | once an hour=hourly
    per minute=perminute | a minute=perminute | each minute=perminute | every minute=perminute
    per second=persecond | a second=persecond | each second=persecond | every quarter=quarterly
    each quarter=quarterly | every night=nightly | each night=nightly | half an hour=30 minutes | a couple of=2
    a dozen=12 | git hub=github | java script=javascript | type script=typescript | post gres=postgres
    postgresql=postgres | postgre sql=postgres | k8s=kubernetes | js=javascript | ts=typescript | py=python
    golang=go_lang | go language=go_lang | vs code=vscode | visual studio code=vscode | mongo db=mongodb
    mongo=mongodb | gh=github | gcp=google_cloud | google cloud platform=google_cloud | google cloud=google_cloud
    amazon web services=aws | psql=postgres | sql lite=sqlite | redhat=red_hat | mac os=macos | os x=macos
    github action=github_actions | gha=github_actions | github workflows=github_actions
    github actions=github_actions | use case=usecase | run book=runbook | play book=playbook
    post mortem=postmortem | post-mortem=postmortem | road map=roadmap | dead line=deadline
    white space=whitespace | file name=filename | user name=username | pass word=password | time out=timeout
    times out=timeout | timed out=timeout | timing out=timeout | log in=login | sign in=login | signing in=login
    logging in=login | opt for=prefer | work week=workweek | back up=backup | backed up=backup | check in=commit
    checked in=commit | out of date=outdated | out-of-date=outdated | up to date=current | up-to-date=current
    team mate=teammate | team mates=teammate | co-worker=coworker | co-workers=coworker
    feature flag=feature_flag | feature flags=feature_flag | feature toggle=feature_flag
    feature toggles=feature_flag | style guide=styleguide | error message=error | error messages=error
    issue tracker=tracker | bug tracker=tracker | ticket system=tracker | ticketing system=tracker
    ticket tracker=tracker | bug board=tracker | issue board=tracker | quality assurance=qa
    key bindings=keybinding | key binding=keybinding | keybindings=keybinding | keyboard shortcuts=keybinding
    short cut=shortcut | rate limit=rate_limit | rate limits=rate_limit | rate-limit=rate_limit
    rate limited=rate_limit | rate limiting=rate_limit | rate-limited=rate_limit | throttled=rate_limit
    throttle=rate_limit | throttles=rate_limit | throttling=rate_limit | request quota=rate_limit
    data centre=datacenter | data center=datacenter | public holiday=holiday | human resources=hr
    machine learning=ml | artificial intelligence=ai | pull-request=pr | read only=readonly | read-only=readonly
    hard coded=hardcoded | hard-coded=hardcoded | open source=opensource | open-source=opensource
    real time=realtime | real-time=realtime | sub folder=subfolder | trade off=tradeoff | step by step=stepwise
    step-by-step=stepwise | bullet points=bullet | bullet point=bullet | bullet lists=bullet | on-site=onsite
    on site=onsite | unavailable=not available | unable=not able | leave out=without | leaves out=without
    leaving out=without | left out=without | omit=without | omits=without | omitting=without | w/o=without
    free of=without | free from=without | off limits=forbidden | switch off=disable | switched off=disable
    turn off=disable | turned off=disable | turns off=disable | switch on=enable | switched on=enable
    turn on=enable | turned on=enable | turns on=enable | off-limits=forbidden | not an option=forbidden
    out of the question=forbidden | no-go=forbidden | not ok=forbidden | not okay=forbidden
    not acceptable=forbidden | unacceptable=forbidden | by hand=manually | hands-on=manual | at all times=always
    under no circumstances=never | at no point=never | plain english=plain_english | to the point=short
    kept short=short | keep short=short
"""
_LIGHT: Final = """
    a an the this that these those it its itself he she they them their his her him we our ours i me my you your
    is are was were be been being am do does did done doing have has had having will would shall should can could
    may might must ought to of in on at by for with from as into onto upon about over under within per and or so
    if then than when whenever while where which who whom whose what how there here very really just simply
    please note remember mind also again still now currently nowadays already always 
    user someone everyone anybody everybody somebody thing stuff something anything way
    want wish prefer need use get go take come put set let say said know mean make
    usually typically actually certainly definitely obviously
    any each every such same other another too well much more lot lots
    sure kind sort out away along across one ones named
    because since therefore hence thus although though however but yet even ever
    happen exist become remain stay seem appear look turn try find see seen
    rule convention policy preference expect supposed meant decision agreed
    via through among toward towards whatever wherever whether anymore
    explicitly particularly especially behind beside between during inside outside around throughout
    regard concern relate regarding concerning etc eg ie vs
    follow follows following live listen carefully fine ok okay available held 
    allow mandatory require stick ensure got instead_of instead worth consider
    team repo repository project without
"""
# Words so general that one for another makes no other fact.
_GENERIC: Final = """
    run work service system application tool contain include feature thing time place part item set serve hold
    perform provide involve type way piece element component instance side area
    do come get person people
    date day period size value enduser all
"""
# Words that add no fact where the other side has none in their place.
_SPARE: Final = """
    send see keep ask tell call go put hold home base around about important url link address number name file page
    give show endure provide offer manage handle plan own reach reachable whole entire existing overall general
    specific particular
    strongly highly absolutely official officially basically good proper properly careful successfully overall main
    mainly write say begin
    support process order fully completely correctly currently explicit clear clearly team standard regular
    work job task person people code software data information detail content entry
    once first_of_all forward ahead reminder purpose matter case topic
"""
_NEGATIVE: Final = """
    not no never none nobody nothing neither nor cannot cant avoid refrain forbid forbidden prohibit prohibited
    ban banned disallow disallowed stop dislike hate refuse reject skip no_longer
"""
# Of one kind, of which one excludes the other; the first word names the kind.
_KINDS: Final = """
    indent: tab space
    theme: dark light
    package_manager: npm yarn pnpm bun pip poetry uv conda pipenv cargo maven gradle
    test_runner: pytest unittest nose jest vitest mocha jasmine junit rspec playwright cypress selenium
    database: postgres mysql sqlite mongodb redis mariadb oracle dynamodb cassandra cockroachdb
    language: python javascript typescript rust java kotlin go_lang ruby swift scala php perl elixir haskell
    editor: vim neovim emacs vscode intellij sublime pycharm nano helix zed
    ci: jenkins github_actions circleci travis buildkite gitlab teamcity
    chat: slack discord mattermost zulip irc
    tracker: jira linear asana trello youtrack notion
    cloud: aws azure google_cloud heroku
    system: linux macos windows ubuntu debian fedora
    merge_way: squash rebase merge
    linter: ruff flake8 pylint eslint biome prettier black
    drink: coffee tea
    diet: vegetarian vegan
    format: json yaml toml xml csv
    protocol: rest graphql grpc soap
    color: red green blue yellow purple orange pink white black gray brown
    season: spring summer autumn winter
    daypart: morning afternoon eveningtime night
    case: snake camel kebab pascal
    queue: kafka rabbitmq sqs nats
    monitoring: grafana datadog prometheus sentry newrelic splunk kibana
    bound: at_least at_most more_than less_than
    rhythm: daily_each weekly monthly yearly hourly quarterly nightly biweekly fortnightly perminute persecond
    order: before after
    direction: increase decrease raise lower
    switch: enable disable
    speed: fast slow
    length: short long detailed
    manner: automatic manual
    fate: keep delete
    opening: open close
    skill: beginner expert
    quantity: all some most few many
    presence: import export
    inclusion: include exclude
    reach: sync async
    order_of_time: early late
    height: high low
    tone: formal informal casual
    work_place: remote onsite hybrid
    quotes: single double
    number_form: singular plural
    size: big small
    shape: monolith microservice
    flow: upload download
    mood: imperative past
    strictness: strict lenient
    language_spoken: english german french spanish italian japanese chinese portuguese dutch polish russian
"""
NAMED: Final = frozenset(
    {"package_manager", "test_runner", "database", "language", "editor", "ci", "chat", "tracker", "cloud", "system"}
    | {"linter", "format", "protocol", "queue", "monitoring", "language_spoken"}
)
"""Kinds whose members have names: a name that is not known may be one of them."""
DIMENSIONS: Final = frozenset(
    {"language", "language_spoken", "format", "season", "color", "system", "cloud", "daypart"}
)
"""Kinds that memories are often told apart by: where they stand in the names, they are what each is about."""
# What is said of one of these is not said of another.
_SCOPES: Final = """
    staging production development test qa local sandbox demo preview canary frontend backend ios android web mobile
    desktop client server internal external public private read write north south east west eu us apac emea primary
    secondary replica master upstream downstream inbound outbound incoming outgoing left right unittest_kind integration
    e2e junior senior weekday weekend
"""
_CHANGES: Final = """
    move change raise lower switch migrate replace increase decrease no_longer formerly previously
    postpone reschedule extend shorten bump reduce upgrade downgrade
"""
# One of these on one side alone makes it another statement, however alike the rest is.
_TURNING: Final = """
    delete remove drop disable deprecated abandon cancel retire skip except unless until temporary former old
    obsolete optional exempt exception excluding half double fail break only_if off
    at_least at_most more_than less_than
"""
_OWNING: Final = "own owner lead responsible maintain review approve oncall contact manage owned head ask assign belong"


def _families() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _SAME.replace("|", "\n").strip().splitlines():
        words = [base_of(word) for word in line.split()]
        head = words[0]
        for word in words:
            found.setdefault(word, head)
    return found


def _phrase_table() -> tuple[re.Pattern[str], dict[str, str]]:
    table: dict[str, str] = {}
    for one in _PHRASES.replace("\n", "|").split("|"):
        said, equals, meant = one.strip().partition("=")
        if equals:
            table[said] = meant
    longest = sorted(table, key=len, reverse=True)
    return re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, longest))})(?![\w/-]|\.\w)"), table


_FAMILY: Final = _families()
_HEADS: Final = frozenset(_FAMILY.values())
_PHRASE, _MEANT = _phrase_table()
_MEANINGS: Final = frozenset(_MEANT.values())


def phrases(text: str) -> str:
    """Return a text in lower case with expressions of several words as the one word they stand for."""
    return _PHRASE.sub(lambda found: _MEANT[found.group()], text)


@lru_cache(maxsize=16_384)
def normal(word: str) -> str:
    """Return the one word that stands for all that say the same as this."""
    base = base_of(word)
    return _FAMILY.get(base, base)


def _normals(words: str) -> frozenset[str]:
    return frozenset(map(normal, words.split()))


LIGHT: Final = _normals(_LIGHT)
"""Words that carry no fact of their own."""
NEGATIVE: Final = _normals(_NEGATIVE)
GENERIC: Final = _normals(_GENERIC)
SPARE: Final = _normals(_SPARE) | GENERIC
SCOPES: Final = _normals(_SCOPES)
CHANGES: Final = _normals(_CHANGES)
OWNING: Final = _normals(_OWNING)
TURNING: Final = _normals(_TURNING) | CHANGES


def _by_kind() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _KINDS.strip().splitlines():
        kind, _, words = line.strip().partition(":")
        for word in words.split():
            found.setdefault(normal(word), kind)
    return found


_KIND: Final = _by_kind()


def kind_of(word: str) -> str:
    """Return the kind of thing a normal word names, of which one excludes another; empty where none is known."""
    return _KIND.get(word, "")


def is_family(word: str) -> bool:
    """Say whether a normal word stands for several, and so is no one's name."""
    return word in _HEADS


def is_phrase(word: str) -> bool:
    """Say whether a word stands for an expression of several."""
    return word in _MEANINGS
