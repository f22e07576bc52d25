"""Parse a line of bash with loops, conditions, substitutions and variables; anything else raises ``ValueError``.

Only a part of the language is known, and each construct is read exactly as bash reads it. The text is never rewritten:
every word keeps its place, by which ``agreement.py`` compares the result with that of tree-sitter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from .word_parser import WordParser
from .words import Assignment, Comparison, Script, ScriptCommand, ScriptWord, Text, Value

_ENDS: Final = frozenset({"do", "done", "then", "elif", "else", "fi", "esac", "}"})
_REFUSED: Final = frozenset({"function", "select", "coproc", "time", "in", "]]"})
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=)")
_REDIRECTION: Final = re.compile(r"(?:[12]?>&[12](?![0-9-])|(?:&|[12])?>{1,2} *(?:/dev/null)|2>&-)(?=[ ;|\n)]|&&|\Z)")
_HERE: Final = re.compile(r"<<(-?) *(?:'([A-Za-z_]\w*)'|\"([A-Za-z_]\w*)\"|([A-Za-z_]\w*))(?=[ ;|\n)]|\Z)")
_UNARY: Final = frozenset(f"-{letter}" for letter in "bcdefghknpstuwxzGLNOSr")
_TEXT_TESTS: Final = frozenset({"=", "==", "!=", "<", ">", "=~", "-nt", "-ot", "-ef"})
_NUMBER_TESTS: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
# A regular expression after =~ that needs no quotes and computes nothing.
_REGEX: Final = re.compile(
    r"(?:[^\s'\"`$;&<>\\()#]|\\[^\n]|\$(?=[\s)|])|\((?=[^\s()]*\)))[^\s'\"`$;&<>\\()]*(?:[()|$\\][^\s'\"`$;&<>\\()]*)*"
)
MAX_DEPTH: Final = 20


def parse_script(text: str) -> Script:
    """Return everything that a line does; raise ``ValueError`` with a reason at a construct that is not known."""
    parser = _ScriptParser(text)
    parser.read_list(())
    if parser.at < len(text):
        raise ValueError(f"it holds {text[parser.at]!r} where no command ends")
    parser.refuse_open_documents()
    return parser.result()


class _ScriptParser(WordParser):
    """Reads lists, pipelines and commands, and collects the parts of a ``Script``."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._commands: list[ScriptCommand] = []
        self._bindings: list[Assignment] = []
        self._comparisons: list[Comparison] = []
        self._words: list[ScriptWord] = []
        self._reads: list[ScriptWord] = []
        self._documents: list[tuple[str, bool, bool]] = []
        self._depth = 0
        self._is_simple = True

    def result(self) -> Script:
        """Return everything that was read."""
        return Script(
            commands=tuple(self._commands),
            bindings=tuple(self._bindings),
            comparisons=tuple(self._comparisons),
            sums=tuple(self.sums),
            summed=tuple(self.summed),
            counts=tuple(self.counts),
            words=tuple(self._words),
            reads=tuple(self._reads),
            is_simple=self._is_simple and not (self._bindings or self._words or self._reads),
        )

    def refuse_open_documents(self) -> None:
        """Raise if a here-document has no text."""
        if self._documents:
            raise ValueError("a here-document does not end")

    # Lists and pipelines

    def read_list(self, ends: tuple[str, ...]) -> ScriptCommand | None:
        """Read commands up to one of the words or signs; return the last one if the list is a single pipeline."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        count, last = 0, None
        while True:
            self.skip_lines()
            if self._is_at_end(ends):
                break
            last = self._read_pipeline()
            count += 1
            self.skip_blanks()
            if self.starts("&&") or self.starts("||"):
                self.at += 2
                self.skip_lines()
                if self._is_at_end(ends):
                    raise ValueError("a command is missing after && or ||")
                count += 1
            elif self.starts(";;"):
                break
            elif self.starts(";"):
                self.at += 1
            elif not (self.at >= len(self.source) or self.source[self.at] in "\n)"):
                raise ValueError(f"it holds {self.source[self.at]!r} after a command")
        if not count:
            raise ValueError("a command is missing")
        self._depth -= 1
        return last if count == 1 else None

    def _is_at_end(self, ends: tuple[str, ...]) -> bool:
        if self.at >= len(self.source):
            if ends:
                raise ValueError(f"it lacks {ends[0]}")
            return True
        word = self.plain_word_ahead()
        if self.source[self.at] == ")" or word in _ENDS or self.starts(";;"):
            if not any(word == end or (end in (")", ";;") and self.starts(end)) for end in ends):
                raise ValueError(f"it holds {word or self.source[self.at]!r} where no command ends")
            return True
        return False

    def _read_pipeline(self) -> ScriptCommand | None:
        if self.plain_word_ahead() == "!":
            self._is_simple = False
            self.at += 1
            self.skip_blanks()
        last = self._read_timed() if self.plain_word_ahead() == "time" else self._read_command()
        while True:
            self.skip_blanks()
            if not self.starts("|") or self.starts("||"):
                return last
            self._is_simple = self._is_simple and not self.starts("|&")
            self.at += 2 if self.starts("|&") else 1
            self.skip_lines()
            last = self._read_command()

    def skip_lines(self) -> None:
        """Skip blanks, comments and ends of lines."""
        while True:
            self.skip_blanks()
            if self.starts("\n"):
                self.at += 1
                self._read_documents()
            else:
                return

    # Commands

    def _read_timed(self) -> ScriptCommand:
        self._is_simple = False
        start = self.at
        self.at += len("time")
        self.skip_blanks()
        if self.plain_word_ahead() in self._readers() or self.source[self.at : self.at + 1] in ("-", "("):
            raise ValueError("it measures more than a simple command")
        return self._read_simple(start)

    def _readers(self) -> dict[str, Callable[[], None]]:
        return {
            "for": self._read_for, "while": self._read_while, "until": self._read_while, "if": self._read_if,
            "case": self._read_case, "[[": self._read_test,
        }  # fmt: skip

    def _read_command(self) -> ScriptCommand | None:
        word = self.plain_word_ahead()
        if word in _REFUSED or word in _ENDS:
            raise ValueError(f"{word} is a word of the shell's own language")
        readers = self._readers()
        if word in readers:
            self.at += len(word)
            readers[word]()
        elif word == "{":
            self.at += 1
            self.read_list(("}",))
            self.expect("}")
        elif self.starts("(("):
            self.at += 2
            self.read_sum("))")
        elif self.starts("("):
            self.at += 1
            self.read_list((")",))
            self.expect(")")
        else:
            return self._read_simple()
        self._is_simple = self._is_simple and word == "if"
        self._reads += self._redirections()
        return None

    def _read_simple(self, time_at: int | None = None) -> ScriptCommand:
        start = len(self._bindings)
        words: list[ScriptWord] = []
        reads: list[ScriptWord] = []
        is_mixed = False
        while True:
            self.skip_blanks()
            if self.is_at_word_end():
                break
            at = self.at
            if (found := self._redirection()) is not None:
                reads += found
                is_mixed = is_mixed or self.source[at : self.at] == "2>&1"
            elif not words and (assigned := _ASSIGNMENT.match(self.source, self.at)):
                self._read_assignment(assigned)
            else:
                words.append(self.read_word())
            if self._documents and "\n" in self.source[words[0].start if words else self.at : self.at]:
                raise ValueError("a word goes over several lines before a here-document")
        if not words and not reads and len(self._bindings) == start:
            raise ValueError("a command is missing")
        if words:
            own = self._bindings[start:]
            self._bindings[start:] = [Assignment(one.name, one.words, words[0].text) for one in own]
        made = ScriptCommand(tuple(words), tuple(reads), time_at, is_mixed)
        if words or reads:
            self._commands.append(made)
        return made

    def _read_assignment(self, assigned: re.Match[str]) -> None:
        self.at = assigned.end()
        if not self.starts("("):
            self._bindings.append(Assignment(assigned[1], (self.read_word(may_be_empty=True, is_value=True),)))
            return
        self.at += 1
        words: list[ScriptWord] = []
        while True:
            self.skip_lines()
            if self.starts(")"):
                break
            word = self.read_word()
            if word.beginning.startswith("["):
                raise ValueError("it sets an element of an array by a name")
            words.append(word)
        self.at += 1
        if not self.is_at_gap():  # bash goes on with the same word: a "#" here begins no comment
            raise ValueError("text follows an array without a blank")
        self._bindings.append(Assignment(assigned[1], tuple(words)))

    def _redirections(self) -> list[ScriptWord]:
        found: list[ScriptWord] = []
        while True:
            self.skip_blanks()
            if self.is_at_word_end() or self.source[self.at] not in "<>&12":
                return found
            more = self._redirection()
            if more is None:
                raise ValueError("words follow the end of a loop or group")
            found += more

    def _redirection(self) -> list[ScriptWord] | None:
        """Read one redirection; return the files that it reads, or None if there is none here."""
        if found := _REDIRECTION.match(self.source, self.at):
            self.at = found.end()
            return []
        if self.starts("<<<"):
            self.at += 3
            self.skip_blanks()
            self._words.append(self.read_word())
            return []
        if found := _HERE.match(self.source, self.at):
            self.at = found.end()
            self._is_simple = False
            if self.is_inside_substitution:
                raise ValueError("it has a here-document inside a substitution")
            self._documents.append((found[2] or found[3] or found[4], bool(found[1]), not found[4]))
            return []
        if self.starts("<") and not self.starts("<("):
            self.at += 1
            self.skip_blanks()
            word = self.read_word()
            if word.is_pattern or (word.text.startswith("/dev/") and word.text != "/dev/null"):
                raise ValueError("it reads from a pattern or a device")
            return [word]
        if self.source[self.at : self.at + 1] in ("<", ">", "&") and not self.starts("<("):
            raise ValueError("it redirects in a way other than to /dev/null, between outputs, or from a file")
        return None

    def _read_documents(self) -> None:
        """Read the texts of here-documents, which begin after the end of the line."""
        if self._documents and self.is_inside_substitution:
            raise ValueError("a substitution goes over several lines before a here-document")
        for mark, is_indented, is_quoted in self._documents:
            while True:
                if self.at >= len(self.source):
                    raise ValueError("a here-document does not end")
                end = self.source.find("\n", self.at)
                line = self.source[self.at : end if end >= 0 else len(self.source)]
                self.at = end + 1 if end >= 0 else len(self.source)
                if (line.lstrip("\t") if is_indented else line) == mark:
                    break
                if not is_quoted and re.search(r"[`\\]|\$[^A-Za-z_ \"'.,;)0-9]", line):
                    raise ValueError("bash would compute a here-document")
        self._documents.clear()

    # Loops and conditions

    def _read_for(self) -> None:
        self.skip_blanks()
        if self.starts("(("):
            self.at += 2
            for end in (";", ";", "))"):
                self.read_sum(end, may_be_empty=True)
            self.skip_blanks()
            if self.starts(";"):
                self.at += 1
        else:
            name = self.read_name()
            self.skip_blanks()
            self.expect("in")
            words: list[ScriptWord] = []
            while True:
                self.skip_blanks()
                if self.starts(";") or self.starts("\n"):
                    self.at += 1
                    break
                words.append(self.read_word())
            if self.source[self.at - 1] == "\n":
                self._read_documents()
            self._bindings.append(Assignment(name, tuple(words)))
            self._words += words
        self.skip_lines()
        self._read_body("do", "done")

    def _read_while(self) -> None:
        self.read_list(("do",))
        self._read_body("do", "done")

    def _read_body(self, first: str, last: str) -> None:
        self.expect(first)
        self.read_list((last,))
        self.expect(last)

    def _read_if(self) -> None:
        self.read_list(("then",))
        self.expect("then")
        self.read_list(("elif", "else", "fi"))
        while self.plain_word_ahead() == "elif":
            self.at += 4
            self.read_list(("then",))
            self.expect("then")
            self.read_list(("elif", "else", "fi"))
        if self.plain_word_ahead() == "else":
            self.at += 4
            self.read_list(("fi",))
        self.expect("fi")

    def _read_case(self) -> None:
        self.skip_blanks()
        self.read_word()
        self.skip_lines()
        self.expect("in")
        while True:
            self.skip_lines()
            if self.plain_word_ahead() == "esac":
                break
            if self.starts("("):
                self.at += 1
            while True:
                self.skip_blanks()
                self.read_word()
                self.skip_blanks()
                if not self.starts("|"):
                    break
                self.at += 1
            if not self.starts(")"):
                raise ValueError("a pattern of case does not end")
            self.at += 1
            self.skip_lines()
            if not self.starts(";;") and self.plain_word_ahead() != "esac":
                self.read_list((";;", "esac"))
            if self.starts(";;"):
                self.at += 2
                if self.starts("&"):
                    raise ValueError("it falls through in case")
        self.expect("esac")

    # [[ ... ]]

    def _read_test(self) -> None:
        if self._documents:
            raise ValueError("a condition comes before a here-document")
        self._read_condition(0)
        self.skip_test_blanks()
        self.expect("]]")

    def skip_test_blanks(self) -> None:
        """Skip blanks and ends of lines inside ``[[``."""
        while self.at < len(self.source) and self.source[self.at] in " \t\n":
            self.at += 1

    def _read_condition(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        while True:
            self.skip_test_blanks()
            while self.plain_word_ahead() == "!":
                self.at += 1
                self.skip_test_blanks()
            if self.starts("("):
                self.at += 1
                self._read_condition(depth + 1)
                self.skip_test_blanks()
                if not self.starts(")"):
                    raise ValueError("a condition does not end")
                self.at += 1
            else:
                self._read_comparison()
            self.skip_test_blanks()
            if not (self.starts("&&") or self.starts("||")):
                return
            self.at += 2

    def _read_comparison(self) -> None:
        first = self.read_word()
        self.skip_test_blanks()
        if first.is_plain and first.is_literal and first.text.startswith("-"):
            if first.text not in _UNARY:
                raise ValueError(f"{first.text} is not on the list of tests that only read")
            self._comparisons.append(Comparison(first.text, (self.read_word(),)))
            return
        operator = self.operator_ahead()
        if operator in _TEXT_TESTS or operator in _NUMBER_TESTS:
            self.at += len(operator)
            self.skip_test_blanks()
            second = self._regex() if operator == "=~" else self.read_word()
            self._comparisons.append(Comparison(operator, (first, second)))
        elif operator in ("]]", "&&", "||", ")"):
            self._comparisons.append(Comparison("-n", (first,)))
        else:
            raise ValueError(f"{operator} is not on the list of tests that only read")

    def _regex(self) -> ScriptWord:
        found = _REGEX.match(self.source, self.at)
        if found is None or found[0].count("(") != found[0].count(")"):
            return self.read_word()
        start, self.at = self.at, found.end()
        return ScriptWord((Text(found[0], True),), start, self.at, False)

    def read_substitution(self, *, is_quoted: bool) -> Value:
        """Read the commands of a substitution up to its bracket."""
        last = self.read_list((")",))
        self.expect(")")
        return Value("substitution", is_quoted=is_quoted, last=last)
