"""The inspector as one self-contained HTML file: script, style and compressed data inside, no build step."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, Final

import msgspec

SCRIPTS: Final = (
    "data.js",
    "dom.js",
    "charts.js",
    "film.js",
    "request.js",
    "reports.js",
    "replay.js",
    "live.js",
    "home.js",
    "main.js",
)
"""The parts of the script, joined to one module in this order."""
STYLE: Final = "page.css"
_NO_SCRIPT: Final = "This page needs JavaScript. It loads nothing from anywhere."


def policy(*, live: bool = False) -> str:
    """Return the content security policy of the page; a live one may ask its own server."""
    asks = "; connect-src 'self'" if live else ""
    return (
        f"default-src 'none'; script-src '{_hash(_script())}'; style-src '{_hash(_part(STYLE))}'{asks}; "
        "base-uri 'none'; form-action 'none'"
    )


def page(data: Mapping[str, Any], *, live: bool = False) -> str:
    """Return the text of one HTML page with this data; a live page has none and asks its server."""
    packed = b64encode(gzip.compress(msgspec.json.encode(data), mtime=0)).decode("ascii")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy(live=live))}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>Reverie inspector</title>
<style>{_part(STYLE)}</style>
</head>
<body>
<header id="head"></header>
<main id="main"><p>Loading</p><noscript>{_NO_SCRIPT}</noscript></main>
<script type="application/json" id="film">{packed}</script>
<script type="module">{_script()}</script>
</body>
</html>
"""


def _script() -> str:
    return "\n".join(map(_part, SCRIPTS))


@cache
def _part(name: str) -> str:
    return files("reverie.servers.inspector").joinpath("assets", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
