"""Read the words of a line of bash: quotes, variables, substitutions, sums, braces and globs."""

from __future__ import annotations

import re
from typing import Final

from .words import Part, ScriptWord, Text, Value

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@%+,^*?\[\]~-]+|[^\x00-\x7f]+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD_END: Final = frozenset(" \t\n;|&<>()")
_BRACES: Final = re.compile(
    r"\{(?:[A-Za-z0-9_./*?-]*(?:,[A-Za-z0-9_./*?-]*)+|[0-9]{1,4}\.\.[0-9]{1,4}|[a-zA-Z]\.\.[a-zA-Z])\}"
)
_AT_BRACES: Final = re.compile(r"(?<=@)\{[A-Za-z0-9]+\}")
_WHOLE: Final = re.compile(r"\{\}")
_ANSI: Final = re.compile(r"\$'((?:[^'\\]|\\[nt\\'])*)'")
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\", "'": "'"}
# ${name}, its length, and forms that cut, replace or change case, or give a default, by literal text.
_LETTER: Final = r"[A-Za-z0-9_.,:*?@%+=^/ -]|\\[/.*$\"' -]"
_LITERAL: Final = rf"(?:{_LETTER})*"
_PARAMETER: Final = re.compile(
    r"\$\{(?P<length>#?)(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<all>\[[@*]\]|\[[0-9]+\])?"
    rf"(?P<form>%%?{_LITERAL}|\#\#?{_LITERAL}|//?{_LITERAL}|:[-+](?:{_LETTER}|\$[A-Za-z_])*|:[0-9]+(?::[0-9]+)?|\^\^?|,,?)?\}}"
)
_SUBSTITUTED: Final = "\0"
"""The mark of a substitution in a sum; no line holds this character."""
# Names, numbers and operators; no subscripts, quotes, substitutions or other number bases.
_SUM: Final = re.compile(
    r"(?:[A-Za-z0-9_ +*/%<>=!&|?:,~^-]|(?<![A-Za-z0-9_}])\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}(?![A-Za-z0-9_]))"
    rf"|(?<![A-Za-z0-9_}}]){_SUBSTITUTED}(?![A-Za-z0-9_]))*"
)


class WordParser:
    """Reads a text from ``at`` on.

    ``sums`` has the variables that bash evaluates as arithmetic, ``summed`` those that it sets so, and ``counts`` the
    substitutions in such expressions.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.sums: list[str] = []
        self.summed: list[str] = []
        self.counts: list[Value] = []
        self.is_inside_substitution = 0

    def starts(self, text: str) -> bool:
        """Return whether the rest begins with a text."""
        return self.source.startswith(text, self.at)

    def skip_blanks(self) -> None:
        """Skip blanks, lines that go on, and a comment."""
        while self.at < len(self.source):
            if self.source[self.at] in " \t":
                self.at += 1
            elif self.starts("\\\n"):
                self.at += 2
            elif self.source[self.at] == "#" and (self.at == 0 or self.source[self.at - 1] in " \t\n;|&()"):
                end = self.source.find("\n", self.at)
                self.at = end if end >= 0 else len(self.source)
            else:
                return

    def is_at_word_end(self) -> bool:
        """Return whether no word and no redirection begins here."""
        if self.at >= len(self.source) or self.source[self.at] in "\n;|)":
            return True
        return self.source[self.at] == "&" and not self.starts("&>")

    def is_at_gap(self) -> bool:
        """Return whether a word that goes up to here ends."""
        return self.at >= len(self.source) or self.source[self.at] in _WORD_END

    def plain_word_ahead(self) -> str:
        """Return the next word if it has letters or signs of the shell's language only; '' if there is none."""
        found = re.compile(r"(?:[a-z]+|!|\{|\}|\[\[|\]\])(?=[ \t\n;|&()<>]|\\\n|\Z)").match(self.source, self.at)
        return found[0] if found else ""

    def operator_ahead(self) -> str:
        """Return the characters up to the next blank."""
        found = re.compile(r"[^\s]+").match(self.source, self.at)
        return found[0] if found else ""

    def expect(self, text: str) -> None:
        """Read a word of the shell's language; raise if another text is here."""
        if not self.starts(text) or (text.isalpha() and self.plain_word_ahead() != text):
            raise ValueError(f"it lacks {text}")
        self.at += len(text)

    def read_name(self) -> str:
        """Read the name of a variable."""
        found = _NAME.match(self.source, self.at)
        if not found:
            raise ValueError("a variable has no name")
        self.at = found.end()
        return found[0]

    def read_word(self, *, may_be_empty: bool = False, is_value: bool = False) -> ScriptWord:
        """Read one word with its parts."""
        start = self.at
        parts: list[Part] = []
        is_plain = True
        while self.at < len(self.source):
            letter = self.source[self.at]
            if letter == "<" and self.starts("<(") and self.at == start:
                self.at += 2
                parts.append(self._substituted("file", is_quoted=True))
                continue
            if letter in _WORD_END:
                if self.starts("<("):
                    raise ValueError("a process's output file is a part of a word")
                break
            is_plain = is_plain and letter not in "'\"\\$`"
            parts += self._parts(letter, start)
        if self.at == start and not may_be_empty:
            raise ValueError(f"it holds {self.source[self.at : self.at + 1]!r} outside quotes")
        raw = self.source[start : self.at]
        if (raw.startswith("~") and raw != "~" and not raw.startswith("~/")) or (is_value and ":~" in raw):
            raise ValueError("it names another user's home or a directory of the shell's memory")
        return ScriptWord(tuple(parts), start, self.at, is_plain)

    def _parts(self, letter: str, start: int) -> list[Part]:
        if letter == "'":
            return [Text(self._until("'"), True)]
        if letter == '"':
            return self._double_quoted()
        if letter == "\\":
            following = self.source[self.at + 1 : self.at + 2]
            if not following or following in "\n\t":
                raise ValueError("it escapes the end of a line inside a word")
            self.at += 2
            return [Text(following, True)]
        if letter == "$":
            return [self._dollar(is_quoted=False)]
        for form in (_AT_BRACES, _WHOLE, _BRACES, _PLAIN):
            if found := form.match(self.source, self.at):
                self.at = found.end()
                return [Value("braces", found[0]) if form is _BRACES else Text(found[0])]
        if letter == "!" or (letter == "#" and self.at > start):
            self.at += 1
            return [Text(letter)]
        raise ValueError(f"it holds {letter!r} outside quotes")

    def _until(self, mark: str) -> str:
        end = self.source.find(mark, self.at + 1)
        if end < 0:
            raise ValueError("a quote is not closed")
        text, self.at = self.source[self.at + 1 : end], end + 1
        return text

    def _double_quoted(self) -> list[Part]:
        self.at += 1
        parts: list[Part] = [Text("", True)]
        while True:
            if self.at >= len(self.source):
                raise ValueError("a quote is not closed")
            letter = self.source[self.at]
            if letter == '"':
                self.at += 1
                return parts
            if letter == "`":
                raise ValueError("it holds a backquote")
            if letter == "\\":
                following = self.source[self.at + 1 : self.at + 2]
                if following == "\n":
                    raise ValueError("it escapes the end of a line inside a word")
                parts.append(Text(following if following in '\\"$`' else f"\\{following}", True))
                self.at += 2
            elif letter == "$":
                parts.append(self._dollar(is_quoted=True))
            else:
                parts.append(Text(letter, True))
                self.at += 1

    def _dollar(self, *, is_quoted: bool) -> Part:
        if self.starts("$(("):
            self.at += 3
            self.read_sum("))")
            return Value("sum", is_quoted=is_quoted)
        if self.starts("$("):
            self.at += 2
            return self._substituted("substitution", is_quoted)
        if not is_quoted and (found := _ANSI.match(self.source, self.at)):
            self.at = found.end()
            return Text(re.sub(r"\\(.)", lambda each: _ESCAPES[each[1]], found[1]), True)
        if found := _PARAMETER.match(self.source, self.at):
            return self._parameter(found, is_quoted)
        following = self.source[self.at + 1 : self.at + 2]
        if found := _NAME.match(self.source, self.at + 1):
            self.at = found.end()
            return Value("variable", found[0], is_quoted)
        if following in ("?", "#", "$") and following:
            self.at += 2
            return Value("status", is_quoted=is_quoted)
        if following in ("", *" \n|;)/.,%\\]:^=") or (is_quoted and following in "\"'"):
            self.at += 1
            return Text("$", True)
        raise ValueError(f"it holds {self.source[self.at : self.at + 3]!r}, which bash computes")

    def _parameter(self, found: re.Match[str], is_quoted: bool) -> Value:
        if found["length"] and found["form"]:
            raise ValueError("it changes a length")
        self.at = found.end()
        if found["length"]:
            return Value("length", found["name"], is_quoted)
        is_list = found["all"] in ("[@]", "[*]")
        # A form with a default may be empty or the literal text: it is no number any more.
        return Value("list" if is_list else "changed" if found["form"] else "variable", found["name"], is_quoted)

    def _substituted(self, kind: str, is_quoted: bool) -> Value:
        self.is_inside_substitution += 1
        found = self.read_substitution(is_quoted=is_quoted)
        self.is_inside_substitution -= 1
        return Value(kind, is_quoted=is_quoted, last=found.last)

    def read_substitution(self, *, is_quoted: bool) -> Value:
        """Read the commands of a substitution up to its bracket; the parser of commands does."""
        raise NotImplementedError

    def read_sum(self, end: str, *, may_be_empty: bool = False) -> None:
        """Read an arithmetic expression up to its end, and keep the names in it."""
        text, depth = "", 0
        while not (depth == 0 and self.starts(end)):
            letter = self.source[self.at : self.at + 1]
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if depth < 0 or not letter:
                raise ValueError("an arithmetic expression does not end")
            if self.starts("$(") and not self.starts("$(("):
                self.at += 2
                self.counts.append(self._substituted("substitution", is_quoted=False))
                text += _SUBSTITUTED
                continue
            text += " " if letter in "()" else letter
            self.at += 1
        self.at += len(end)
        if not _SUM.fullmatch(text) or (not text.strip() and not may_be_empty):
            raise ValueError("an arithmetic expression is not of the few forms that only count")
        if re.search(r"[0-9][A-Za-z_]", text):
            raise ValueError("a number is not plain")
        self.sums += _NAME.findall(text)
        self.summed += re.findall(r"([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))", text)
        self.summed += re.findall(r"(?:\+\+|--)\s*([A-Za-z_]\w*)", text)
