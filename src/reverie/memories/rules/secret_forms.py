# ruff: noqa: E501 - a row of the table is a line
"""The places in which a text names a secret: keys with values, commands, headers, connection strings, sentences.

Each form of ``secret_formats.toml`` has a literal part, which is searched for first, and a pattern that starts there.
The value alone then decides whether it is a secret.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Final

from .secret_values import (
    BRACKET,
    COMMIT,
    DIGIT,
    FORMATS,
    HEX,
    SHORT_HEX,
    UUID,
    is_counted,
    is_issued,
    is_odd,
    is_password,
    is_placeholder,
    is_random,
    plain_text,
    with_letters,
)

_SHORTHANDS: Final = {
    "@ANY": r"(?P<value>[^\s\"'`<>]{4,512})",
    "@QUOTED": r"[\\\"'`]{0,2}(?P<value>[^\s\"'`]{4,512})",
    "@OPTIONS": r"(?:[^\n|;&]{0,200}?\s)",
    "@BASE64": r"(?P<base64>[A-Za-z0-9+/]{12,2000}={0,2})",
    "@KEY_TEXT": r"(?:[A-Za-z0-9+/=:,\s\\]|-(?!----))",
}
_WORD_END: Final = re.compile(r"(?i:ord|ort|d|s|ña)?(?:Value|String)?(?![^\W\d_])")
"""The end of a keyword; more letters make another word: a tokenizer, tokenData."""
_LIST: Final = re.compile(r"[^\W\d_]*,")
"""The end of a keyword that is an item of a list."""
_STANDS_ALONE: Final = re.compile(
    r"(?<![\w.-])(?:passwor[dt]|passphrase|contraseña|senha|пароль|密码|mot de passe)(?![\w.-])", re.IGNORECASE
)
_NO_PASSWORD: Final = re.compile(r"[()\[\]{}|\\=:/,\u2010\u2011]|&&|&[a-z]{2,8}\Z")
_SHORT: Final = re.compile(r"(?:pass|pw|psk|pwd|auth)(?!\w)|pass(?!w|p|c)|pw(?!d)|psk", re.IGNORECASE)
_CODE: Final = re.compile(
    r"[{}]|&&|\|\||\)\(|^\*?[,)\]]|^/\*|^&\[|^(?:this|self)\.|^[A-Za-z$_]\.[A-Za-z$_]+$|^\[?[A-Za-z_$][\w.$]*(?:\((?:[^()]*\)|[\w$]+\.[\w.$]*$)|\[\d*$)|^-(?![\w-]{30})|=(?=[A-Za-z_$])"
    r"|^[a-z_]\w*(?:\.[a-z_]\w*)+:[A-Za-z_]+$"
)
"""Signs of an expression or of an option in a value without quotes."""
_TYPE: Final = re.compile(
    r"(?:[A-Z][a-z]+[0-9]*)*[A-Z][a-z]+(?=,[ ]\w+\??:|[ ]\||\)(?::|[ ]=>|[ ]\{)|<\w)|[A-Z]\w+[ ]\|[ ](?:None|null|undefined)\b"
)
"""The type of a parameter, as in ``password: Uint8Array | string``."""
_BETWEEN_LITERALS: Final = re.compile(r"[),\]+;}&|].*(?:[(=,+:\[]|;\w+;\w+)", re.DOTALL)
_CAMEL: Final = re.compile(r"[A-Za-z][a-z]+(?:[A-Z][a-z]{2,})+")
_FIELD: Final = re.compile(r"(?:[?&]|(?<!\S)--)[\w.-]*\Z")
"""The name of an option or of a field in a URL, up to its keyword."""
_NAME: Final = re.compile(r"[\w-]*\Z")
_NO_LETTERS: Final = re.compile(r"[\W\d_]+")
_NEXT_OF_PHRASE: Final = re.compile(r"[ \t]+\w")
"""More words before the quote closes: the first one is that of a sentence."""
_COMPOUND: Final = re.compile(r"[\w.-]")
_NEXT_WORD: Final = re.compile(r"(?<=[ \t])[^\s\"'`<>]+")
_PLAIN_WORD: Final = re.compile(r"[^\W\d_]+|[—–-]")
_HOST: Final = re.compile(r"[\w.*-]{1,253}", re.ASCII)
_NO_SEED: Final = frozenset(
    re.findall(
        r"\w+",
        "the and for are was with not but from has have had were they their its his her our into than which would should"
        " could been does did these those them",
    )
)
"""Frequent words that no list of seed words has."""

# The words of keys; a value beside one of the second kind must look random, not only like a password.
_PASSWORDS: Final = (
    "passw", "passphrase", "passcode", "pwd", "pass", "contrase", "senha", "пароль", "密码", "mot de passe", "psk", "pw",
)  # fmt: skip
_RANDOM: Final = ("secret", "token", "credential", "key", "auth", "pat")
_BEFORE_KEY: Final = (
    "api", "access", "auth", "private", "client", "account", "app", "application", "sign", "signing", "encryption",
    "master", "license", "licence", "webhook", "service", "subscription", "storage", "shared", "admin", "secret", "deploy",
    "integration", "session", "consumer", "write", "read", "ingest", "management", "rest", "server", "live", "cookie",
    "jwt", "hmac", "aes", "ssh", "gpg", "preshared", "psk", "data", "project", "user", "bot", "team", "org", "cloud",
    "openai", "azure", "aws", "gcp", "google", "fastly",
)  # fmt: skip
_BEFORE_NO_SECRET: Final = (
    "next", "page", "lock", "request", "idempotency", "purchase", "change", "update", "continuation", "pagination", "publickey",
    "forward", "backward", "starting", "version",
)  # fmt: skip
"""Words before "token" that make it a position or a mark, not a credential."""
_BEFORE_MARK: Final = ("client", "action")
"""Words before "token" that make an id beside it the mark of a request."""
_ABOUT: Final = re.compile(
    r"(?:[\w.-]*[_.-])?(?:prefix|suffix|type|arn|policy|name|ur[li]|path|file|dir|format|pattern|regexp?)",
    re.IGNORECASE,
)
"""Ends of a key that make its value a fact about the secret."""
_PUBLIC: Final = re.compile(r"(?:[\w.-]*[_.-])?(?:hash|digest|address|iv|pub\w*)", re.IGNORECASE)
"""Ends of the name of a token or a key that make its value public."""
_BADGE: Final = re.compile(r"(?:badge|\.svg)[^\s\"'<>()]*[?&][\w-]*\Z")
"""The address of a badge up to the token in it, which every reader of the page gets."""
_NO_COOKIES: Final = ("expires", "path", "domain", "max-age", "samesite")
_KEY_ID: Final = re.compile(r"key[_-]?id(?![a-z])", re.IGNORECASE)
_ID: Final = re.compile(r"[._]id\Z")
_ESCAPE: Final = re.compile(r"(?:\\+(?:[nrt]|x00)?|&(?:quot|apos|lt|gt|#34|#39))$")
_NO_BASE64: Final = re.compile(r"\\+[nr]|[^A-Za-z0-9+/]")
_MIN_CUT_KEY: Final = 400
"""The characters from which the start of a private key is reported even where dots replace the rest."""
_OF: Final = ("of", "for", "to", "on", "in", "at", "von", "für", "de", "del", "do", "da", "du")
_OWNER: Final = rf"(?:[ \t](?:{'|'.join(_OF)})(?:[ \t][\w.'@/-]{{1,32}}){{1,6}}?)?"
_VALUE: Final = re.compile(
    r"(?P<name>[\w.-]{0,24}+)[\\\"'`*\])]{0,4}+"
    rf"(?:{_OWNER}"
    r"(?:[ \t]{0,3}(?P<sign>=>|:=|={1,3}|:|：|>|(?<=[ \t])\|(?=[ \t]))[ \t]{0,3}(?:&?[A-Za-z][\w.\[\]|]{0,24}[ \t]*=[ \t]*(?=[bru]?[\"']))?"
    r"|[ \t]+(?P<verb>is|was|are|ist|es|est|è|é)[ \t]+(?:now[ \t]+|still[ \t]+|just[ \t]+|set to[ \t]+|:[ \t]*)?"
    r"|[ \t]+(?P<to>to)[ \t]+"
    r"|(?P<pair>[ \t]*,[ \t]*(?:value[ \t]*[=:][ \t]*)?(?=[\\\"'])|[ \t]+value[ \t]*=[ \t]*(?=[\\\"'])|\s*,?\s*[\"']?value[\"']?\s*:\s*))"
    rf"|{_OWNER}(?P<blank>[ \t]+))"
    r"(?:!!\w+[ \t]+)?(?:[bru](?=[\"\']))?(?!\\*\"\\*\"|''|``)(?P<quote>[\\\"'`*]{0,4})(?:bearer[ \t]+|basic[ \t]+|token[ \t]+)?"
    r"(?P<value>(?<=[\"'`])[^\s\"'`]{6,1024}(?=[\"'`])|(?:(?!&(?:amp;)?[\w.-]+=)[^\s\"'`<>;,\\]){6,1024})",
    re.IGNORECASE,
)  # fmt: skip

_FORMS: Final = [
    (name, needle, pattern) for name, needles, pattern in FORMATS["forms"] for needle in needles.split("|")
]
"""Kind, literal part and pattern of each form."""


def of_forms(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and kind of each secret that a form of the text names."""
    lowered = text.replace("\u0130", "I").lower()  # the one letter that gets longer in lower case
    for name, needle, pattern in _FORMS:
        if needle in lowered:
            yield from ((*span, name) for span in _of_form(text, lowered, needle, pattern))
    yield from _beside_keywords(text, lowered)


def _of_form(text: str, lowered: str, needle: str, pattern: str) -> Iterator[tuple[int, int]]:
    at = lowered.find(needle)
    while at >= 0:
        found = _form(pattern).match(text, at)
        if found and (span := _secret(found)):
            yield span
        at = lowered.find(needle, max(at + len(needle), found.end() if found else 0))


@cache
def _form(pattern: str) -> re.Pattern[str]:
    for name, part in _SHORTHANDS.items():
        pattern = pattern.replace(name, part)
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


def _secret(found: re.Match[str]) -> tuple[int, int] | None:
    """Return the span of the value of a form, if it is a secret."""
    kind = found.lastgroup or "value"
    value = found[kind]
    match kind:
        case "value":
            good = is_password(plain_text(value))
        case "random":
            good = is_random(value)
        case "line":
            good = _HOST.fullmatch(_line_before(found)) is not None and is_password(value)
        case "hash":
            good = _HOST.fullmatch(_line_before(found)) is not None
        case "cookies":
            parts = (part.partition("=") for part in re.split(r";|\\[rn]", value))
            good = any(is_random(part.strip()) for name, _, part in parts if name.strip().lower() not in _NO_COOKIES)
        case "base64":
            good = _is_login(value)
        case "seed":
            words = re.findall("[a-z]+", value)
            good = value.islower() and len(set(words)) >= 0.7 * len(words) and _NO_SEED.isdisjoint(words)
            good = good and words != sorted(words)  # a sorted list is a dictionary
        case _:
            cut = len(value) < _MIN_CUT_KEY and found.string.startswith("...", found.end())
            return None if cut or _is_start_of_key(value) or "EXAMPLE" in value else found.span()
    return found.span(kind) if good and not (is_placeholder(value) or is_counted(value)) else None


def _is_start_of_key(value: str) -> bool:
    """Say whether less than half of a key is there, by the length that its first bytes state (DER)."""
    text = _NO_BASE64.sub("", value)
    if not text.startswith("MII"):
        return False
    return len(text) * 3 // 4 < int.from_bytes(base64.b64decode(text[:8])[2:4]) // 2


def _line_before(found: re.Match[str]) -> str:
    return found.string[found.string.rfind("\n", 0, found.start()) + 1 : found.start()]


def _is_login(value: str) -> bool:
    """Say whether base64 holds a name and a password."""
    login = plain_text(value)
    return login != value and is_password(login.partition(":")[2])


def _beside_keywords(text: str, lowered: str) -> Iterator[tuple[int, int, str]]:
    for words, weak in ((_PASSWORDS, True), (_RANDOM, False)):
        for word in words:
            at = lowered.find(word)
            while at >= 0:
                if _names_a_secret(text, lowered, at, word):
                    found = _VALUE.match(text, at + len(word))
                    if found and _is_secret_value(text, found, value := _trimmed(found), at, weak=weak):
                        yield found.start("value"), found.start("value") + len(value), "value beside a keyword"
                    elif (
                        weak
                        and _STANDS_ALONE.match(text, at)
                        and not (found and _TYPE.match(text, found.start("value")))
                    ):
                        yield from _some_words_behind(text, at + len(word))
                at = lowered.find(word, at + len(word))


def _some_words_behind(text: str, at: int) -> Iterator[tuple[int, int, str]]:
    """Yield a password that follows its keyword after a few words of the same sentence."""
    end = text.find("\n", at, at + 100)
    if _LIST.match(text, at):
        return
    first = ""
    for number, found in enumerate(islice(_NEXT_WORD.finditer(text, at, end if end >= 0 else at + 100), 5)):
        word = found[0].rstrip(".,;:!?)]}")
        first = first or word
        is_owner = number == 1 and first in _OF  # as in "the password for root@host"
        if not is_owner and len(word) >= 8 and _is_odd_password(word):
            yield found.start(), found.start() + len(word), "value beside a keyword"
            return
        if not (is_owner or _PLAIN_WORD.fullmatch(found[0])):
            return


def _is_odd_password(word: str) -> bool:
    """Say whether a word of a sentence is a password; a commit, a path or a name is none."""
    if (
        _NO_PASSWORD.search(word)
        or word[0] == "-"
        or not is_odd(word)
        or COMMIT.fullmatch(word)
        or _CAMEL.fullmatch(word)
        or is_placeholder(word)
    ):
        return False
    return is_password(word, clear=False)


def _trimmed(found: re.Match[str]) -> str:
    value = _ESCAPE.sub("", found["value"])
    return value.rstrip(".,;:)]}&" if found["quote"] or found["sign"] else ".,;:!?)]}")


def _names_a_secret(text: str, lowered: str, at: int, word: str) -> bool:
    """Say whether a keyword is that of a credential: "key" after "api" or "private", "pass" at the end of a name."""
    before, end = lowered[max(0, at - 16) : at], at + len(word)
    if not _WORD_END.match(text, end):
        return False
    match word:
        case "key":
            return (before[:-1] if before[-1:] in ("_", " ", ".", "-") else before).endswith(_BEFORE_KEY)
        case "token":
            return not before.rstrip("_- ").endswith(_BEFORE_NO_SECRET)
        case "secret":  # the name of a resource
            return before[-1:] != ":" or text[end : end + 1] != ":"
        case "pass" | "auth" | "pat" | "psk" | "pw":
            # A test that passed is reported as "PASS: name".
            return (
                not before[-1:].isalnum()
                and before[-1:] not in ("!", "%", "^", "~", "}", "]")
                and (before[-1:] == "_" or not text.startswith("PASS:", at))
            )
        case _:
            return True


def _is_marked(found: re.Match[str]) -> bool:
    """Say whether dots cut a quoted value, the font of a manual page starts it, or it is code between two literals."""
    value = found["value"]
    return bool(found["quote"]) and (
        value.endswith("...")
        or (found["quote"] == "\\" and value[0] == "f")
        or _BETWEEN_LITERALS.fullmatch(value) is not None
    )


def _is_secret_value(text: str, found: re.Match[str], value: str, at: int, *, weak: bool) -> bool:
    if len(value) < 6 or not is_issued(value) or is_counted(value) or _is_marked(found):
        return False
    is_open = text[found.end("value") : found.end("value") + 1] not in ('"', "'", "`", "\\", "*")
    if (is_open or not found["quote"]) and (
        _CODE.search(value)
        or _TYPE.match(text, found.start("value"))
        or (len(value) < 32 and text[at : at + 3].lower() in value.lower())
    ):
        return False  # an expression, or the name of another variable
    if _repeats_name(text, found, value, at) or _is_fact(text, found, at, weak=weak):
        return False
    if not found["sign"] and _SHORT.match(text, at):
        return False
    if found["sign"] == ">" and text[found.end() : found.end() + 2] != "</":
        return False
    if found["blank"] is not None:
        return _is_after_blank(text, found, value, at, weak=weak)
    if found["pair"] is not None and (
        _ID.search(found["name"])
        or BRACKET.search(value)
        or SHORT_HEX.fullmatch(value)
        or not (weak or (DIGIT.search(value) and value.isalnum()))
    ):
        return False
    named = text[at : at + 3].isupper() or "api" in text[max(0, at - 5) : at].lower()
    clear = bool(found["quote"] or found["verb"] or found["pair"] or named or found["sign"] in (":", "：", ">"))
    is_field = named or _FIELD.search(text, max(0, at - 24), at) is not None or value != plain_text(value)
    value = plain_text(value)
    if weak:
        is_phrase = found["quote"][-1:] in ("'", '"') and _NEXT_OF_PHRASE.match(text, found.end("value"))
        return is_random(value) if is_phrase else is_password(value, clear=clear)
    if UUID.fullmatch(value):
        mark = text[max(0, at - 8) : at].lower().rstrip("_- ").endswith(_BEFORE_MARK)
        return not mark and (named or (not found["name"] and _COMPOUND.match(text, at - 1) is not None))
    return is_random(value, quoted=bool(found["quote"]) or (is_field and not BRACKET.search(value)))


def _is_fact(text: str, found: re.Match[str], at: int, *, weak: bool) -> bool:
    """Say whether a name is that of a fact about a secret: its file, its hash, its number."""
    if not weak and (_PUBLIC.fullmatch(found["name"]) or _BADGE.search(text, max(0, at - 200), at)):
        return True
    if text[at : at + 5].lower() == "token" and found["value"].startswith("0x"):
        return True  # the address of a contract
    return bool(found["sign"] and (_ABOUT.fullmatch(found["name"]) or _KEY_ID.match(text, at)))


def _repeats_name(text: str, found: re.Match[str], value: str, at: int) -> bool:
    """Say whether a value is little more than its own name, as in ``password = "Passw0rd1"``."""
    before = _NAME.search(text, max(0, at - 40), at)
    name = (before[0] if before else "") + text[at : found.end("name")]
    name, value = (_NO_LETTERS.sub("", with_letters(part)) for part in (name, value))
    return len(value) >= 6 and (value in name or (name in value and len(name) >= 0.6 * len(value)))


def _is_after_blank(text: str, found: re.Match[str], value: str, at: int, *, weak: bool) -> bool:
    """Say whether a value only a blank behind a keyword is a secret: of an option, in quotes, or too odd for a word."""
    if text[max(0, at - 24) : at].rpartition(" ")[2].startswith("-") or (found["quote"] in ("'", '"') and weak):
        return is_password(value) if weak else is_random(value, quoted=not BRACKET.search(value))
    if not weak:
        own = "key" if "key" in text[at : at + 3].lower() else text[at : at + 4].lower()
        return (
            len(value) >= 20
            and value.isalnum()
            and own not in value.lower()
            and is_random(value)
            and not HEX.fullmatch(value)
        )
    return bool(_STANDS_ALONE.match(text, at)) and _is_odd_password(value)
