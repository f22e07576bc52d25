"""Give the package index a README whose links are absolute: an index does not have the other files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def with_absolute_links(text: str, repository: str) -> str:
    """Return Markdown whose links to files, and pictures, lead into the repository."""

    def absolute(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/main/{target})"

    return LINK.sub(absolute, text)


class ReadmeHook(MetadataHookInterface):
    """Set the project's description from README.md."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata of the package."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = with_absolute_links(text, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
