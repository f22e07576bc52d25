"""Judge values in the place of a secret: a word, a name, a path, an expression or a placeholder is no secret."""

from __future__ import annotations

import base64
import math
import re
import tomllib
import unicodedata
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import unquote

# Read at once, so that a full disk or too many open files cannot stop a scan later.
FORMATS: Final[dict[str, list[list[str]]]] = tomllib.loads(
    Path(__file__).with_name("secret_formats.toml").read_text("utf-8")
)
"""The rows of ``secret_formats.toml`` by table."""
_MIN_DISTINCT: Final = 6
_MIN_ENTROPY: Final = 3.0
_HEAD: Final = 80
"""The number of characters searched for a placeholder: a long random value spells any short word."""
DIGIT, _LOWER, _UPPER, _SIGN = (re.compile(kind) for kind in ("[0-9]", "[a-z]", "[A-Z]", r"(?<=.)[^\w./\s-](?=.)"))
_CALL: Final = re.compile(r"(?:\d[\d.]*[*+/-])?([A-Za-z_](?:[\w.$]|::)*)[(\[]")
_MIN_KEY_CHARS: Final = 16
_PATH: Final = re.compile(r"[./_-]")
BRACKET: Final = re.compile(r"[()\[\]{}|]")
_PIECE: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_DIGITS: Final = re.compile("[0-9]+")
HEX: Final = re.compile(r"(?:0x)?[0-9a-fA-F]{16,}")
SHORT_HEX: Final = re.compile(r"(?=.{16,23}\Z)(?:0x)?[0-9a-fA-F]+")
"""Too short for a key: a checksum, a salt or an id."""
COMMIT: Final = re.compile("[0-9a-fA-F]{7,40}")
_PAIRS: Final = frozenset(
    row[0] + second
    for row in re.findall(
        r"\w+",
        "aabcdefgiklmnprstuvwxyz babcdeijlmoprstuy cacdefhiklmnoprstuy dabcdefgilmnorstuvy eabcdefghiklmnopqrstuvwxy"
        " facdefilorstuy gaceghilmnoprsu haeilmorstuy iabcdefgklmnoprstvxz jaeosu kadeilnpsuw labcdefgilmnoprstuvy"
        " mabcdeilmopstuy nacdefghijklmnoprstuvy oabcdefgijklmnoprstuvwx pacdehiklmoprstuy qlu rabcdefgiklmnoprstuvwy"
        " sacdefghiklmnopqrstuvwy tabcdefhilmnoprstuvwxyz uabcdefgilmnoprst vaceio waehilnors xaceipt"
        " yaceilmnopst zaeiou",
    )
    for second in row[1:]
)
"""The pairs of letters that words and names of programs are made of: first letter, then each that follows it."""
_MIN_LONG_WORD: Final = 10
_NAME_SHARE: Final = 0.75
_NAME_SHARE_OF_PARTS: Final = 0.6
_WORD_SHARE: Final = 0.5
_WHOLE_PART: Final = re.compile("[A-Za-z0-9]+")
_EXPRESSION: Final = re.compile(
    r"[=:/.|&?,\[\](){}_-]*(?:(?:[A-Z]?[a-z]+(?:[A-Z][a-z]{2,})*|[A-Z]+|[0-9]+)(?:[=:/.|&?,\[\](){}_-]+|\Z))+"
)
"""Words in the usual cases, and numbers, each followed by signs of a program."""
_SNAKE: Final = re.compile(r"_?[a-z]+[0-9]?(?:[-_.][a-z]+[0-9]*)+|_?[A-Z]+[0-9]?(?:_[A-Z]+[0-9]*)+")
_PASSPHRASE: Final = re.compile(r"(?=.*[0-9])[A-Z][a-z]{2,}[0-9]*(?:([-_.~])[A-Z][a-z]{2,}[0-9]*){2,}(?:\1[0-9]+)?")
"""Words that a password manager joins: capitalized, one sign between them, a digit."""
_LETTERS_FOR_SIGNS: Final = str.maketrans({**dict(zip("013457@$!", "oieastasi", strict=True)), "2": "to"})
_WORDS: Final = re.compile(
    r"(?:(?>[A-Z][a-z]+|[A-Z]{2}[a-z]{2,}|[A-Z]{2,}(?=[A-Z][a-z])|[A-Z]{2,}(?![a-z])|[a-z]{2,})(?>[^\w\s]|_)?+)++"
)
"""Words of at least two letters: small, in capitals, or with one capital. No letter is tried in two of them."""
_TAIL: Final = re.compile(r"[\W\d_]+\Z")
_INNER_DIGITS: Final = re.compile("(?<=[A-Za-z])[0-9]+(?=[A-Za-z])")
_MARKS: Final = re.compile("[\u0300-\u036f]")
_CLAIM: Final = re.compile(b'"(?:iss|sub|aud|exp|nbf|iat|jti)"')
UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@cache
def _any(table: str) -> re.Pattern[str]:
    return re.compile("|".join(pattern for _, pattern in FORMATS[table]), re.IGNORECASE | re.DOTALL)


def is_odd(value: str) -> bool:
    """Say whether a value has a digit, a sign or an inner capital, as few words have."""
    return DIGIT.search(value) is not None or _SIGN.search(value) is not None or _UPPER.search(value, 1) is not None


def plain_text(value: str) -> str:
    """Return a value without its encoding for a URL or in base64."""
    if "%" in value:
        return text if (text := unquote(value)).isascii() else value
    try:
        text = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode("ascii")
    except ValueError:
        return value
    return text if len(text) >= 6 and text.isprintable() else value


def is_placeholder(value: str) -> bool:
    """Say whether a value is a placeholder for a secret."""
    return len(set(value)) < _MIN_DISTINCT or _any("placeholders").search(value, 0, _HEAD) is not None


def is_issued(token: str) -> bool:
    """Say whether a token is more than a sample; a web token without any of the registered claims is one."""
    parts = token.split(".")
    if token.startswith("eyJ") and len(parts) == 3:
        try:
            header, claims = (base64.urlsafe_b64decode(part + "==") for part in parts[:2])
        except ValueError:
            return True
        if not _CLAIM.search(claims) or not header.endswith(b"}"):
            return False
    return not is_placeholder(token)


def is_counted(value: str) -> bool:
    """Say whether the letters and the digits of a value each count upwards, as in ``a1b2c3d4``."""
    head = value[:_HEAD].lower()
    rows = [row for row in (_LOWER.findall(head), DIGIT.findall(head)) if row]
    steps = [other in (chr(ord(one) + 1), "a", "0", "1") for row in rows for one, other in pairwise(row)]
    return len(rows) == 2 and len(steps) >= 4 and sum(steps) >= 0.9 * len(steps)


def _plain_letters(value: str) -> str:
    """Return a value with letters without their accents."""
    return value if value.isascii() else _MARKS.sub("", unicodedata.normalize("NFKD", value))


def _classes(value: str) -> int:
    return sum(bool(kind.search(value)) for kind in (DIGIT, _LOWER, _UPPER, _SIGN))


def is_password(value: str, *, clear: bool = True) -> bool:
    """Say whether a value in the place of a password is one; in a ``clear`` place a word with a digit is enough."""
    value = _plain_letters(value).replace("\\-", "-")  # a hyphen of a manual page
    if len(value) < 6 or value[-1] == "(" or (value.isalpha() and len(value) < 8):
        return False
    letters = _LOWER.search(value) or _UPPER.search(value)
    if sum(not letter.isascii() for letter in value) > len(value) / 2:
        return False  # words in another script
    if (call := _CALL.match(value)) and is_name(call[1]):
        return False
    if _PASSPHRASE.fullmatch(value):
        return True
    if value.startswith(("urn:", "arn:")) or (value[0] == "/" and is_name(value)) or is_expression(value):
        return False
    if not letters or _any("no_secrets").fullmatch(value) or UUID.fullmatch(value):
        return _classes(value) == 4
    if _classes(value) == 4:
        return True
    mixed = (DIGIT.search(value) and not _PATH.search(value)) or _SIGN.search(value)
    return not is_chosen(value) and (bool(clear and mixed) or not is_name(value))


def with_letters(value: str) -> str:
    """Return a value in lower case, with the letters that digits and signs commonly replace: ``P@ssw0rd``."""
    return value.lower().translate(_LETTERS_FOR_SIGNS)


def is_chosen(value: str) -> bool:
    """Say whether a person chose a value and no program made it: a word or a name, digits behind it or for letters."""
    word = _TAIL.sub("", value)
    plain = word.translate(_LETTERS_FOR_SIGNS)
    changed = sum(ord(letter) in _LETTERS_FOR_SIGNS for letter in word)
    return len(word) >= 3 and changed <= 0.2 * len(word) and bool(_WORDS.fullmatch(plain)) and is_name(plain)


def is_random(value: str, *, quoted: bool = False) -> bool:
    """Say whether a value is too random to be a word, a name or an expression."""
    if len(value) < 8 or not value.isascii() or _any("no_secrets").fullmatch(value) or UUID.fullmatch(value):
        return False
    if _PASSPHRASE.fullmatch(value):
        return True
    if SHORT_HEX.fullmatch(value):
        return False
    if is_expression(value) or is_chosen(value):
        return False
    if _classes(value) == 4 and len(value) <= 64 and value[-1] not in "=(" and "(" not in value:
        return True
    if BRACKET.search(value) and not quoted:
        return False
    kinds = 1 if value.isalpha() and value[1:].islower() else _classes(value)  # the capital of a sentence
    if len(value) < (8 if quoted and (kinds > 2 or not DIGIT.search(value)) else _MIN_KEY_CHARS) or (
        kinds < 2 and len(value) < 20
    ):
        return False
    return not is_name(value) and (len(value) < _MIN_KEY_CHARS or _entropy(value) >= _MIN_ENTROPY)


def is_name(value: str) -> bool:
    """Say whether a value consists of words, as names and paths do."""
    pieces = _PIECE.findall(value)
    runs = len(pieces) + len(_DIGITS.findall(value))
    if (
        HEX.fullmatch(value)
        or runs > len(value) / 3
        or len(_INNER_DIGITS.findall(value)) >= 3
        or len(_SIGN.findall(value.replace(":", ""))) >= 3
    ):
        return False
    words = [piece for piece in pieces if _is_word(piece)]
    if any(len(word) >= _MIN_LONG_WORD and word[1:].islower() for word in words):
        return True
    share = sum(map(len, words)) / max(sum(map(len, pieces)), 1)
    return (
        share >= (_NAME_SHARE_OF_PARTS if _PATH.search(value) else _NAME_SHARE) or _SNAKE.fullmatch(value) is not None
    )


def is_expression(value: str) -> bool:
    """Say whether signs of a program join whole words and numbers: a path with a query, fields, a piece of code."""
    parts = _WHOLE_PART.findall(value)
    return (
        len(parts) >= 3
        and _EXPRESSION.fullmatch(value) is not None
        and sum(len(part) for part in parts if _is_word(part)) >= _WORD_SHARE * sum(map(len, parts))
    )


def _is_word(piece: str) -> bool:
    pairs = [one + other not in _PAIRS for one, other in pairwise(piece.lower())]
    return len(piece) >= 3 and sum(pairs) <= 0.2 * len(pairs)


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())
