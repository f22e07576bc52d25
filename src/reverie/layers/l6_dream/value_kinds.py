"""Kinds of values of which one excludes another, by lines; the first word names the kind. Data, written by hand."""

from __future__ import annotations

from typing import Final

__all__ = ["ACTS", "DIMENSIONS", "IMPLIED", "KINDS", "NAMED"]

KINDS: Final = """
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
    system: linux macos windows_os ubuntu debian fedora
    merge_way: squash rebase merge
    linter: ruff flake8 pylint eslint biome prettier black
    drink: coffee tea
    measures: metric imperial
    marital: married unmarried divorced widowed
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
    verdict: accept reject
    outcome: succeed fail
    warmth: hot cold warm cool
    truth: true false
    rightness: correct wrong
    openness: public private
    strength: strong weak
    price_level: cheap expensive
    ends: top bottom
    trade: buy sell
    side: leftward right
    lending: lend borrow
    game: win lose
    link: connect disconnect
    latch: lock unlock
    secrecy: encrypt decrypt
    showing: show hide
    filling: full empty
    wetness: wet dry
    cleanness: clean dirty
    business: busy idle
    being_on: online offline
    change: static dynamic
    extent: global local
    lasting: temporary permanent
    sign: positive negative
    lie: horizontal vertical
    at_a_time: sequential parallel
    eagerness: eager lazy
    depth: deep shallow
    width: wide narrow
    thickness: thick thin
    nearness: near far
    importance: major minor
    loudness: loud quiet
    tightness: tight loose
    push_or_pull: push pull
    teaching: teach learn
    danger: safe dangerous
    joining: join leave
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
ACTS: Final = frozenset(
    {"direction", "switch", "fate", "opening", "presence", "inclusion", "flow", "verdict", "outcome", "trade", "game"}
    | {"lending", "link", "latch", "secrecy", "showing", "push_or_pull", "teaching", "joining", "merge_way", "reach"}
)
"""Kinds whose members are done: who does one, an importer, is a thing with that name, and no value."""
# What a value of a kind says already: Postgres is a database, and data is stored in one.
IMPLIED: Final = """
    database: database data store
    language: language code write implement
    drink: drink beverage best
    when: deadline due date day
    tracker: tracker track bug
    editor: editor edit
    ci: ci build pipeline
    cloud: cloud provider host
    system: system os
    package_manager: package manager install
    test_runner: test runner framework
    theme: theme mode
    color: color
    chat: chat channel
    monitoring: monitor dashboard
    queue: queue broker message event publish send
    code: region zone channel path url location post host run
    currency: cost price
    unit: duration time period
    language_spoken: language speak
    format: format file
    protocol: protocol
"""
