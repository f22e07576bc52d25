"""Give the package index a README without relative links: an index does not have the other files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def without_relative_links(text: str, repository: str | None) -> str:
    """Return Markdown whose links to files lead into the repository; without one, they become their words."""

    def absolute(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if repository is None:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/main/{target})"

    return LINK.sub(absolute, text)


class ReadmeHook(MetadataHookInterface):
    """Set the project's description from README.md."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata of the package."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = without_relative_links(text, metadata.get("urls", {}).get("Repository"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
