"""Lines whose words or commands bash computes are never judged by their text: they ask.

Each line ran a program of the repository, or showed a file outside, under a judge that wrote loops and substitutions
as simple commands before it parsed them.
"""

from __future__ import annotations

import pytest

from reverie.tools.shell.grammar import UnclearLine, parse

LINES = [
    "echo then n=$(bash payload.sh); ls",
    'ls then echo "$(bash payload.sh)"',
    "head 2>&1 then cat <(bash payload.sh)",
    "for f in ls; do f=$(echo bash payload.sh); $f; done",
    "for f in '. -exec bash payload.sh ;'; do find $f; done",
    """for f in ''; do awk -F $f '{print}' 'BEGIN{system("bash payload.sh")}'; done""",
    "for f in k/*; do find $f -maxdepth 0; done",
    'for f in -exec; do echo "$(find . $f bash payload.sh {} +)"; done',
    'for f in echo find; do $f "$(echo .)" "$(echo -exec)" bash payload.sh {} +; done',
    """printf "$(echo -v)" 'a[$(bash payload.sh >&2)]' x""",
    """n=$(echo -v); printf "$n" 'a[$(bash payload.sh >&2)]' x""",
    """for f in -; do printf "${f}v" 'a[$(bash payload.sh >&2)]' x; done""",
    """echo "$(ls #)"; (ls\nls); echo " ; bash payload.sh ; echo '"'\\'""",
    'for f in -; do echo <(find . "${f}exec" bash payload.sh {} +); done',
    "for f in x1; do f=$(echo /etc/passwd); head -1 $f; done",
    'for f in /etc/passwd; do echo "$(head -1 $f)"; done',
    "for f in push; do git $f; done",
    "git {push,origin}",
    "seq 3 | xargs -n1 -P 1$((99)) cat",
    "cat h/s$((1+1))",
]


@pytest.mark.requirement("S3")
@pytest.mark.parametrize("line", LINES)
def test_a_line_that_bash_computes_is_not_understood(line: str) -> None:
    assert isinstance(parse(line), UnclearLine)
