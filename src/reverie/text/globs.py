"""Translate path patterns (``*``, ``?``, ``[...]``, ``{a,b}``, ``**``) into regular expressions that never backtrack
over a name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ..errors import InputError

_MAX_EXPANSIONS: Final = 200
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_WILD: Final = re.compile(r"[*?\[\]{}\\]")
_TOKEN: Final = re.compile(r"\\(.)|(\*+)|(\?)|\[([!^]?)(\]?[^\]]*)\]|(.)", re.DOTALL)


@lru_cache(maxsize=512)
def path_regex(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that a relative path must match in full; ``**`` matches any directories."""
    return re.compile("|".join(_path(one) for one in expanded_patterns(pattern)), re.DOTALL)


def literal_prefix(pattern: str) -> tuple[str, str]:
    """Split a path pattern into its leading directories without wildcards and the remaining pattern."""
    parts = pattern.split("/")
    count = next((at for at, part in enumerate(parts) if _WILD.search(part)), len(parts) - 1)
    head = "/".join(parts[:count])
    return head or ("/" if count and pattern.startswith("/") else ""), "/".join(parts[count:])


def expanded_patterns(pattern: str) -> list[str]:
    """Return a list with a pattern for each combination of the choices in braces; raise if they are too many."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        one = waiting.pop()
        found = _braces(one)
        if found is None:
            done.append(one)
        else:
            start, end, choices = found
            waiting += [one[:start] + choice + one[end:] for choice in reversed(choices)]
        if len(done) + len(waiting) > _MAX_EXPANSIONS:
            raise InputError(f"the braces in {pattern[:80]!r} expand to too many patterns; use fewer")
    return done


def _braces(pattern: str) -> tuple[int, int, list[str]] | None:
    """Return start, end and choices of the first group in braces that has a comma; None if there is none."""
    masked = _ESCAPED.sub("..", pattern)  # an escaped brace is literal
    start = masked.find("{")
    while start >= 0:
        depth, choices, begin = 0, list[str](), start + 1
        for at in range(start, len(masked)):
            letter = masked[at]
            if letter == "{":
                depth += 1
            elif letter == "," and depth == 1:
                choices.append(pattern[begin:at])
                begin = at + 1
            elif letter == "}":
                depth -= 1
                if depth == 0:
                    if choices:
                        return start, at + 1, [*choices, pattern[begin:at]]
                    break
        start = masked.find("{", start + 1)
    return None


def _path(pattern: str) -> str:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    found = ""
    for at, part in enumerate(parts):
        is_last = at == len(parts) - 1
        if part == "**":
            if parts[at - 1 : at] != ["**"]:  # two in a row mean the same as one
                found += "(?:[^/]+/)*" + ("[^/]+" if is_last else "")
            elif is_last:
                found += "[^/]+"
        else:
            found += _name(part) + ("" if is_last else "/")
    return found


def _name(pattern: str) -> str:
    """Return a regular expression for one path component; each star keeps its first match, enough for globs."""
    chunks = [""]
    for escaped, stars, any_one, negated, letters, plain in _TOKEN.findall(pattern):
        if stars:
            chunks.append("")
        elif any_one:
            chunks[-1] += "[^/]"
        elif letters:
            chunks[-1] += _letters(letters, bool(negated))
        else:
            chunks[-1] += re.escape(escaped or plain)
    if len(chunks) == 1:
        return chunks[0]
    middle = "".join(f"(?>[^/]*?{chunk})" for chunk in chunks[1:-1] if chunk)
    last = chunks[-1]
    return chunks[0] + middle + (f"[^/]*{last}(?=/|\\Z)" if last else "[^/]*")


def _letters(letters: str, negated: bool) -> str:
    inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", letters)
    made = f"(?!/)[{'^' if negated else ''}{inside}]"
    try:
        re.compile(made)
    except re.error:
        raise InputError(f"[{letters}] is no set of characters; write it like [a-z] or [!0-9]") from None
    return made
