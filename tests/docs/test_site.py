"""The documentation builds without a warning and without a network, and shows everything public."""

from __future__ import annotations

import fcntl
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import reverie
import reverie.errors

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
RECIPES = [
    "add-memory",
    "add-a-tool",
    "stream",
    "without-asyncio",
    "openai-compatible",
    "budget",
    "hooks",
    "telemetry",
    "tests",
    "resume",
]

pytestmark = pytest.mark.slow
pytest.importorskip("mkdocs", reason="the extra dev is not installed whole: it now has mkdocs")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Build the site once for all workers, behind a proxy that does not answer."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder if worker_id == "master" else folder.parent
    built = folder / "site"
    with (folder / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            nowhere = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "all_proxy")}
            done = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder / "making")],
                cwd=REPOSITORY,
                env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
                capture_output=True,
                text=True,
                timeout=240,
            )
            assert done.returncode == 0, done.stderr
            (folder / "making").rename(built)
    return built


@pytest.fixture
def pages() -> Any:
    """Import the hook of the site."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("site_pages")
    finally:
        sys.path.remove(str(DOCS))


@pytest.mark.requirement("U6")
def test_every_page_is_built_and_none_needs_another_host(site: Path) -> None:
    sources = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    folders = {source.parent if source.name in ("index", "README") else source for source in sources}
    assert [folder for folder in folders if not (site / folder / "index.html").exists()] == []
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*src=\"?(https?://[^\" >]+)", page.read_text())
        loaded += re.findall(
            r"<link[^>]*rel=\"?(?:stylesheet|icon)\"?[^>]*href=\"?(https?://[^\" >]+)", page.read_text()
        )
        assert loaded == [], page
    assert not list(site.rglob("*.py"))


def unlisted(shown: set[str]) -> list[str]:
    """Return the public names and methods of the package that are not among these identifiers."""
    missing: list[str] = []
    for name in set(reverie.__all__) - set(reverie.errors.__all__):
        made = getattr(reverie, name)
        full = next((each for each in shown if re.fullmatch(rf"reverie\.[a-z_.]+\.{name}", each)), "")
        methods = [each for each in vars(made) if inspect.isfunction(vars(made)[each]) and not each.startswith("_")]
        own = methods if isinstance(made, type) and name != "SyncSession" else []  # which has the methods of Session
        missing += [f"{name}.{each}" for each in own if f"{full}.{each}" not in shown] + ([] if full else [name])
    return missing


@pytest.mark.requirement("U2")
def test_everything_public_is_in_the_api_reference(site: Path) -> None:
    pages = (site / "reference" / "api").rglob("*.html")
    shown = {each for page in pages for each in re.findall(r"id=\"?(reverie\.[\w.]+)", page.read_text())}
    assert unlisted(shown) == []
    assert "budget_usd" in (site / "reference" / "api" / "agent" / "index.html").read_text(), "parameters of a class"
    assert {"reverie.ports.Reply.body", "reverie.settings.Settings.home"} <= shown, "fields of a record"
    assert unlisted({each for each in shown if not each.endswith("Session.run")}) == ["Session.run"]


def test_there_are_ten_recipes_each_with_its_program(site: Path) -> None:
    listed = re.findall(r"^- \[.*\]\((.*)\.md\)", (DOCS / "recipes" / "index.md").read_text(), flags=re.MULTILINE)
    assert listed == RECIPES
    for name in RECIPES:
        text = (DOCS / "recipes" / f"{name}.md").read_text()
        (program,) = re.findall(r"^Program: \[(examples/\w+\.py)\]", text, flags=re.MULTILINE)
        assert (REPOSITORY / program).is_file(), "tests/examples runs it"
        assert "The whole program" in (site / "recipes" / name / "index.html").read_text()


def test_a_page_that_no_index_names_and_a_link_to_nowhere_are_seen(
    pages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "guides" / "deep").mkdir(parents=True)
    (tmp_path / "guides" / "index.md").write_text("- [A](a.md#x)\n- [Deep](deep/index.md)\n- [Other](../b.md)\n")
    for name in ("guides/a.md", "guides/unnamed.md", "guides/deep/index.md", "b.md"):
        (tmp_path / name).write_text("# Page\n")
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    assert pages.pages_of("guides/index.md") == ["guides/index.md", "guides/a.md", {"Deep": ["guides/deep/index.md"]}]
    (tmp_path / "guides" / "index.md").write_text("- [A](a.md)\n\n## Deeper\n\n- [Deep](deep/index.md)\n")
    grouped = ["guides/index.md", "guides/a.md", {"Deeper": [{"Deep": ["guides/deep/index.md"]}]}]
    assert pages.pages_of("guides/index.md") == grouped
    page = SimpleNamespace(file=SimpleNamespace(src_path="guides/a.md"))

    config = SimpleNamespace(repo_url="https://x.example/r")
    monkeypatch.setattr(pages, "REPOSITORY", tmp_path.parent)
    text = pages.on_page_markdown("[a](../b.md) [b](../../gone.md)", page=page, config=config)
    assert text == "[a](../b.md) [b](https://x.example/r/blob/main/gone.md)"
    assert "guides/a.md links to ../../gone.md, which does not exist" in caplog.text
    config.repo_url = None
    text = pages.on_page_markdown("[a](../b.md) [b](../../c.py) ![d](../../d.svg)", page=page, config=config)
    assert text == "[a](../b.md) b ", "without a repository only the words stay"


def comparable(picture: str) -> list[str]:
    """Return the texts of a picture: amounts of money and shares as they are, other numbers masked.

    Random identifiers change the other numbers a little.
    """
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    kept = [re.sub(r"cut-[0-9a-f-]+", "cut", text) for text in texts]
    return [text if re.search(r"[$%]", text) else re.sub(r"\d", "0", text) for text in kept]


def test_the_picture_of_the_readme_is_that_of_the_demo_today() -> None:
    sys.path.insert(0, str(DOCS))
    try:
        drawing = importlib.import_module("demo_picture")
    finally:
        sys.path.remove(str(DOCS))
    drawn = drawing.PICTURE.read_text()
    assert "docs/demo.svg" in (REPOSITORY / "README.md").read_text()
    assert set(re.findall(r"https?://[\w.]+", drawn)) <= {"http://www.w3.org", "https://www.textualize.io"}
    assert comparable(drawing.current_picture()) == comparable(drawn), "run python docs/demo_picture.py"
    assert comparable(drawn.replace("less&#160;than", "more&#160;than")) != comparable(drawn)
