"""The files, links and tables in the documents are right; tests/docs runs their commands."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from reverie.values import fields_of

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *REPOSITORY.glob("examples/**/*.md")]
)


def shell_commands(document: Path) -> list[str]:
    """Return the lines of a document's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def broken_links(document: Path, text: str) -> list[str]:
    """Return the links to files of the repository that lead nowhere."""
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return [each for each in targets if "://" not in each and not (document.parent / each).exists()]


def test_the_readme_has_two_commands_and_continuous_integration_runs_the_second() -> None:
    run_it, test_it = shell_commands(REPOSITORY / "README.md")
    assert ".venv/bin/reverie" in run_it
    script = (REPOSITORY / ".ci" / "run").read_text().splitlines()
    assert script[-1] == test_it
    assert os.access(REPOSITORY / ".ci" / "run", os.X_OK)
    assert subprocess.run(["bash", "-n", str(REPOSITORY / ".ci" / "run")]).returncode == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(document: Path) -> None:
    assert broken_links(document, document.read_text()) == []


def test_a_link_to_nowhere_would_be_caught() -> None:
    assert broken_links(REPOSITORY / "README.md", "[a](no/such.md) [b](README.md#x) [c](https://x.org)") == [
        "no/such.md"
    ]


def missing_sources(page: str) -> list[str]:
    """Return the files that a page names in its line "Source:" and that do not exist."""
    (named,) = re.findall(r"^Source:(.*?)(?:\n\n|\Z)", page, flags=re.MULTILINE | re.DOTALL) or [""]
    place, missing = REPOSITORY, list[str]()
    for name in re.findall(r"`([\w./-]+\.(?:py|toml)|[\w./-]+/)`", named):
        if name.startswith(("src/", "examples/", "benchmarks/")):
            found = REPOSITORY / name
            place = found if found.is_dir() else found.parent
        else:  # beside or below the one named before
            found = next((path / name for path in (place, *place.parents) if (path / name).exists()), place / name)
        missing += [] if found.exists() else [name]
    return missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_the_sources_that_a_page_names_exist(document: Path) -> None:
    assert missing_sources(document.read_text()) == []


def test_a_source_that_is_gone_would_be_caught() -> None:
    page = "# A\n\nSource: `src/reverie/runtime/guard/hooks.py`, `rules.py`, `hook_commands.py`; `examples/no.py`.\n\n"
    assert missing_sources(page) == ["hook_commands.py", "examples/no.py"]


def test_each_page_of_the_design_has_its_number_and_its_date() -> None:
    for page in (REPOSITORY / "docs" / "design").glob("0*.md"):
        number = page.name[:4]
        assert re.match(rf"# {number}: .+\n\n20\d\d-\d\d-\d\d\b", page.read_text()), page.name


def test_the_telemetry_page_lists_every_metric() -> None:
    source = (REPOSITORY / "src" / "reverie" / "telemetry" / "otel.py").read_text()
    metrics = re.findall(r'(?:counter|histogram)\("([\w.]+)"', source)
    assert len(metrics) > 20
    assert set(metrics) - set(re.findall(r"`([\w.]+)`", (REPOSITORY / "docs/guides/telemetry.md").read_text())) == set()


def test_the_settings_page_lists_every_switch_with_its_default() -> None:
    from dataclasses import asdict

    from reverie.settings import Switches

    page = (REPOSITORY / "docs" / "reference" / "settings.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| (on|off) \|", page, flags=re.MULTILINE))
    assert listed == {name: "on" if value else "off" for name, value in asdict(Switches()).items()}


def names_in_first_column(page: str) -> set[str]:
    """Return the names that stand as code at the start of the rows of a page's tables."""
    cells = re.findall(r"^\| (`.*?) \|", (REPOSITORY / "docs" / page).read_text(), flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(?:Session\.)?(\w+)", cell)}


def test_the_pages_of_session_and_events_list_every_member_and_every_event() -> None:
    from reverie import Session
    from reverie.events import EVENTS, Event

    members = {name for name in dir(Session) if not name.startswith("_")}
    assert members - names_in_first_column("reference/session.md") == set()
    assert names_in_first_column("reference/events.md") == set(EVENTS.values())
    page = (REPOSITORY / "docs" / "reference" / "events.md").read_text()
    for kind in get_args(Event):
        fields = [name for name in fields_of(kind) if name != "session"]
        assert f"| `{EVENTS[kind]}` | {', '.join(f'`{name}`' for name in fields) or '-'} |" in page


def test_the_guide_of_the_agent_lists_every_argument_and_member() -> None:
    import inspect

    from reverie import Agent

    told = set(re.findall(r"`(\w+)", (REPOSITORY / "docs" / "guides" / "agent.md").read_text()))
    members = {name for name in vars(Agent) if not name.startswith("_")} | set(inspect.signature(Agent).parameters)
    assert members - told <= {"from_options", "parts", "plan_path", "unseen_agents", "wait_agent"}


def test_the_page_of_errors_lists_every_error_with_its_kind() -> None:
    import reverie.errors

    page = (REPOSITORY / "docs" / "reference" / "errors.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| `?([\w-]+)`? \|", page, flags=re.MULTILINE))
    kinds = {name: getattr(reverie.errors, name) for name in reverie.errors.__all__}
    raised = {name for name, kind in vars(reverie.errors).items() if isinstance(kind, type)}
    assert raised == set(kinds), "every error can be imported from reverie.errors"
    assert {**listed, "ReverieError": "Exception"} == {name: kind.__bases__[0].__name__ for name, kind in kinds.items()}


def test_each_group_of_settings_has_a_page_that_lists_them_and_the_terminal_page_has_every_command() -> None:
    from reverie.cli.terminal.commands import COMMANDS as SLASH_COMMANDS
    from reverie.cli.terminal.commands import KEYS
    from reverie.settings import Settings

    settings = Settings()
    pages = {
        "trim": "layers/l2-trim.md",
        "notes": "layers/l3-notes.md",
        "compact": "layers/l4-compact.md",
        "extract": "layers/l5-extract.md",
        "dream": "layers/l6-dream.md",
        "relay": "layers/l7-relay.md",
        "recall": "guides/recall.md",
        "agent": "reference/settings.md",
    }
    for group, page in pages.items():
        assert set(fields_of(type(getattr(settings, group)))) - names_in_first_column(page) == set(), page
    told = (REPOSITORY / "docs" / "guides" / "terminal.md").read_text()
    assert [name for name in SLASH_COMMANDS if f"`/{name}`" not in told] == []
    rows = [line for line in told.splitlines() if line.startswith("| ")]
    for key, _ in KEYS:
        assert any(key in row.split(" | ")[0] for row in rows), f"the terminal page has no row for {key}"


def test_the_settings_page_lists_every_key_once_and_marks_those_without_a_variable() -> None:
    from reverie.settings.checks import CHECKS
    from reverie.settings.sources import FILE_ONLY

    page = (REPOSITORY / "docs" / "reference" / "settings.md").read_text()
    (tables,) = re.findall(r"^## Context and cost.*?(?=^\| switch )", page, flags=re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `(\w+)(?:\.<\w+>)?`( \*)? \|", tables, flags=re.MULTILINE)
    assert sorted(key for key, _ in rows) == sorted(CHECKS)
    assert {key for key, mark in rows if mark} == {*FILE_ONLY, "models"} - {"switches"}
