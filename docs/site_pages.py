"""What mkdocs needs beyond Markdown: the navigation, links to files outside of docs/, and programs shown in recipes.

The pages themselves stay plain Markdown, whose links work in a clone and on the host of the repository.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

log = logging.getLogger("mkdocs.hooks.site_pages")

DOCS = Path(__file__).resolve().parent
REPOSITORY = DOCS.parent
SECTIONS = {
    "Guides": "guides/index.md",
    "Recipes": "recipes/index.md",
    "Layers": "layers/index.md",
    "Reference": "reference/index.md",
    "Design": "design/README.md",
}
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+\.md)(?:#[^)]*)?\)|^## (.+)$", re.MULTILINE)
OUTSIDE = re.compile(r"(!?\[[^\]]*\])\(((?:\.\./)+)([^)\s]+)\)")
PROGRAM = re.compile(r"^Program: \[(examples/\w+\.py)\]\([^)]*\)\.?$", re.MULTILINE)


def pages_of(index: str) -> list[Any]:
    """Return an index page and the pages of its folder that it names, in order; a folder or heading is a section."""
    folder = (DOCS / index).parent
    named: list[Any] = [index]
    section = named
    for words, target, heading in LINK.findall((DOCS / index).read_text()):
        page = (folder / target).resolve()
        if heading:
            section = list[Any]()
            named.append({heading: section})
        elif folder in page.parents and page.exists():
            name = str(page.relative_to(DOCS))
            entry = {words: pages_of(name)} if page.name == "index.md" else name
            section += [entry] if entry not in section else []
    return named


def navigation() -> list[Any]:
    """Return the navigation: the first pages, then a section for each index page."""
    sections = [{title: pages_of(index)} for title, index in SECTIONS.items()]
    return [
        {"Start": ["index.md", "tutorial.md"]},
        *sections[:-1],
        {"Design": ["architecture.md", *sections[-1]["Design"]]},
    ]


def on_config(config: Any) -> Any:
    """Set the navigation."""
    config.nav = navigation()
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Turn links to files outside of docs/ into links to the repository, and show the program of a recipe.

    Without the address of a repository only the words of such links stay.
    """
    folder = (DOCS / page.file.src_path).parent

    def absolute(found: re.Match[str]) -> str:
        words, up, rest = found.groups()
        target = (folder / (up + rest.partition("#")[0])).resolve()
        if DOCS in target.parents:
            return found.group()
        if not target.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_path, up + rest)
        if not config.repo_url:
            return words[1:-1] if words.startswith("[") else ""
        kind = "tree" if target.is_dir() else "blob"
        return f"{words}({config.repo_url.rstrip('/')}/{kind}/main/{target.relative_to(REPOSITORY)})"

    programs = PROGRAM.findall(markdown)
    shown = "".join(
        f"\n## The whole program\n\n```python\n{(REPOSITORY / name).read_text()}```\n" for name in programs[:1]
    )
    return OUTSIDE.sub(absolute, markdown) + shown
