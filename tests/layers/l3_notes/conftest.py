"""A session to take notes of, and the template."""

from __future__ import annotations

import pytest

from log_script import Script, call, text
from reverie.layers.l3_notes.policy import NotesPolicy
from reverie.layers.l3_notes.prompts import template_of
from reverie.layers.l3_notes.sections import Template


@pytest.fixture(scope="session")
def template() -> Template:
    """Return our own template."""
    return template_of(NotesPolicy())


@pytest.fixture
def worked() -> Script:
    """Return a session with a request, an error, its repair, a correction and a commit."""
    script = Script()
    script.user("Please make the parser in /repo/src/parse.py accept empty input, limit 4,096 bytes.")
    script.reply(text("I read it first."), call("t1", "Read", file_path="/repo/src/parse.py"))
    script.result("t1", "def parse(text):\n    return text[0]\n")
    script.reply(call("t2", "Bash", command="cd /repo && pytest tests/test_parse.py 2>&1 | tail -5"))
    script.result("t2", "E   IndexError: string index out of range\n1 failed, 3 passed in 0.10s\nExit code 1")
    script.reply(
        text("The problem is that an empty text has no first letter."),
        call("t3", "Edit", file_path="/repo/src/parse.py", old_string="x", new_string="def parse_empty(text):\n  pass"),
    )
    script.result("t3", "ok")
    script.reply(call("t4", "Bash", command="cd /repo && pytest tests/test_parse.py 2>&1 | tail -5"))
    script.result("t4", "4 passed in 0.10s")
    script.reply(text("Empty input is accepted now; 4 tests pass."))
    script.user("No, return None for empty input, and commit it.")
    script.reply(call("t5", "Bash", command='git commit -am "Accept empty input"'))
    script.result("t5", "[main 4f5e6d7] Accept empty input\n 1 file changed, 2 insertions(+)")
    script.reply(text("Committed as 4f5e6d7."))
    return script
