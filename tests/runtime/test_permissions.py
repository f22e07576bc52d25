"""Deny has priority over ask, ask over allow; without a matching rule the mode decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import SettingsError
from reverie.runtime.guard.always import rules_to_keep
from reverie.runtime.guard.permissions import PermissionScope, Verdict, decide
from reverie.settings.records import Mode, PermissionRules
from reverie.tools import Access
from reverie.tools.tool import AccessKind

CWD, HOME = Path("/repo"), Path("/home/me")


def verdict(
    kind: AccessKind,
    target: str,
    tool: str = "Bash",
    mode: Mode = "default",
    sandboxed: bool = True,
    **rules: tuple[str, ...],
) -> Verdict:
    return decide(
        PermissionRules(**rules),
        mode,
        tool,
        Access(kind, target),
        PermissionScope(
            CWD, directories=[Path("/also")], protected=[Path("/repo/[odd]")], home=HOME, sandboxed=sandboxed
        ),
    )


def outcome(kind: AccessKind, target: str, tool: str = "Bash", mode: Mode = "default", **rules: tuple[str, ...]) -> str:
    return verdict(kind, target, tool, mode, **rules).outcome


@pytest.mark.parametrize(
    ("kind", "target", "tool", "default", "accept", "plan"),
    [
        ("none", "", "Todo", "allow", "allow", "allow"),
        ("read", "/repo/a.py", "Read", "allow", "allow", "allow"),
        ("read", "/also/a.py", "Grep", "allow", "allow", "allow"),
        ("read", "/repo/../etc/passwd", "Read", "ask", "ask", "ask"),
        ("read", "/repository/a", "Read", "ask", "ask", "ask"),
        ("write", "/repo/a.py", "Edit", "ask", "allow", "deny"),
        ("write", "/etc/hosts", "Write", "ask", "ask", "deny"),
        ("run", "git status", "Bash", "allow", "allow", "allow"),
        ("run", "rm a", "Bash", "ask", "ask", "deny"),
        ("run", "echo $(rm a)", "Bash", "ask", "ask", "deny"),
        ("fetch", "https://a.b/c", "WebFetch", "ask", "ask", "deny"),
        ("other", "", "mcp__s__t", "ask", "ask", "deny"),
    ],
)
def test_each_mode_has_its_defaults(
    kind: AccessKind, target: str, tool: str, default: str, accept: str, plan: str
) -> None:
    assert outcome(kind, target, tool, "default") == default
    assert outcome(kind, target, tool, "accept-edits") == accept
    assert outcome(kind, target, tool, "plan") == plan
    assert outcome(kind, target, tool, "bypass") == "allow"
    assert outcome(kind, target, tool, "bypass", deny=(tool,)) == "deny"


def test_a_denial_in_plan_mode_says_so() -> None:
    assert "plan mode" in verdict("write", "/repo/a", "Edit", "plan").reason
    assert "plan mode" in verdict("run", "rm a", mode="plan", allow=("Bash",)).reason


@pytest.mark.requirement("S3")
def test_what_only_reads_runs_restricted_or_asks_where_nothing_can_hold_it() -> None:
    assert verdict("run", "ls | wc -l").restricted
    assert verdict("run", "ls", sandboxed=False).outcome == "ask"
    assert not verdict("run", "git commit -m x", allow=("Bash(git commit:*)",)).restricted


@pytest.mark.parametrize(
    "line",
    [
        "cat /etc/passwd",
        "cat ~/.ssh/id_rsa",
        "cat ../x",
        "cat src/../../x",
        "cd /etc && cat x",
        "cd .. && cat x",
        "cd && cat x",
        "cd sub | cat ../x",
        "cd sub; cat ../x",
        "cd sub; ls; cd ..; ls",
        "cd sub && ls | wc -l; cat ../x",
        "cd sub && ls && cd ../.. && ls",
        "cd sub || cd .. && ls",
        "cd -- .. && cat x",
        "grep -e x /etc/passwd",
        "grep -f/etc/passwd x",
        "wc -l < ../x",
        "rg --files /etc",
        "git -C ../other log",
        "git diff --no-index a /etc/x",
        "sed -n 1p /etc/passwd",
        "ls /root",
    ],
)
def test_a_command_that_reads_outside_asks(line: str) -> None:
    assert outcome("run", line) == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "cat a",
        "cat /repo/a",
        "cat /also/a",
        "ls /usr/lib",
        "cd src && cat x",
        "cd src && ls && cd .. && cat a",
        "cd -- src && cat ../a",
        "grep '/api' src",
        "echo /etc",
        "ls 2>/dev/null",
    ],
)
def test_a_command_that_reads_inside_does_not_ask(line: str) -> None:
    assert outcome("run", line) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "git status && rm -rf /",
        "git status; rm x",
        "git status | sh",
        "git status\nrm x",
        "git status $(rm x)",
        "git status > x",
        "git status & rm x",
        "git statusx",
        "git 'status' `rm x`",
        "X=1 git status && rm x",
    ],
)
def test_a_prefix_rule_covers_no_more_than_its_command(line: str) -> None:
    assert outcome("run", line, allow=("Bash(git status:*)",)) == "ask"


def test_a_rule_that_looks_at_the_beginning_of_the_line_would_be_fooled() -> None:
    assert "git status && rm -rf /".startswith("git status")


def test_every_command_of_a_line_needs_a_rule_or_must_only_read() -> None:
    rules = ("Bash(git commit:*)", "Bash(npm run build)")
    assert outcome("run", "npm run build && git commit -m 'a b' && git log -1", allow=rules) == "allow"
    assert outcome("run", "npm run build && git push", allow=rules) == "ask"
    assert outcome("run", "npm run build --evil", allow=rules) == "ask"
    assert outcome("run", "for x in 1; do y; done", allow=("Bash(for x in 1; do y; done)",)) == "allow"
    assert outcome("run", "rm *", allow=("Bash(rm '*')",)) == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "rm x",
        "ls; rm x",
        "env rm x",
        "command rm x",
        "sudo -u me rm x",
        "/bin/rm x",
        "r\\m x",
        "'rm' x",
        "X=1 rm x",
        "(rm x)",
        "$(rm x)",
        "echo `rm x`",
        "bash -c 'rm x'",
        'sh -c "ls; rm x"',
        "eval rm x",
        "find . -exec rm {} ;",
        "ls | xargs -n1 rm",
        "nohup rm x &",
        "if true; then rm x; fi",
        "timeout 5 nice rm x",
        "rm x > (",
        "cat <(rm x)",
        "coproc rm x",
        "trap 'rm x' EXIT",
        'bash<<<"rm x"',
        "sh <<END\nrm x\nEND",
        "echo 'rm x' | sh",
        "alias z=rm; z x",
    ],
)
def test_a_denied_command_is_found_wherever_it_stands(line: str) -> None:
    for mode in ("default", "accept-edits", "plan", "bypass"):
        assert outcome("run", line, mode=mode, deny=("Bash(rm:*)",), allow=("Bash",)) == "deny"


@pytest.mark.parametrize(
    "line",
    ["$'rm' x", "rm$IFS-f x", "r{m,} x", "$x y", "`echo rm` x", "/bin/r? x", "env $x y", "sh -c $x", "eval $x", "(x"],
)
def test_a_command_that_is_known_only_when_it_runs_asks_where_a_rule_denies_commands(line: str) -> None:
    deny = ("Bash(rm:*)",)
    assert outcome("run", line, mode="bypass", deny=deny) == "ask"
    assert outcome("run", line, deny=deny, allow=("Bash",)) == "ask"
    assert outcome("run", line, deny=deny, allow=(f"Bash({line})",)) == "allow"
    assert outcome("run", line, mode="bypass") == "allow"
    assert outcome("run", line, mode="plan", deny=deny) == "deny"


def test_computed_arguments_do_not_ask_where_only_the_command_matters() -> None:
    for line in ("for f in *.py; do wc -l $f; done", 'echo "$HOME"', "make $(nproc)", "ls *.py | xargs wc -l"):
        assert outcome("run", line, mode="bypass", deny=("Bash(rm:*)",)) == "allow"


def test_a_file_that_may_not_be_read_is_not_read_by_a_command() -> None:
    deny = ("Read(.env)", "Read(~/.ssh/**)", "Edit(secrets/**)")
    for line in (
        "cat .env",
        "cat sub/.env",
        "grep x < a; cat ./.env",
        "cat ~/.ssh/id",
        "git diff --no-index a .env",
        "rm secrets/a",
    ):
        assert outcome("run", line, deny=deny) == "deny", line
    assert outcome("run", "cat secrets/a", deny=deny) == "allow"


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".reverie/x",
        ".claude/settings.json",
        "sub/.git/hooks/x",
        ".GIT/config",
        "AGENTS.md",
        "/home/me/.bashrc",
        ".reverie.toml",
        "[odd]/x",
        "src/../.git/config",
        ".cursor/hooks.json",
        ".codex/hooks.json",
        ".gemini/settings.json",
        "GEMINI.md",
        "sub/Claude.local.md",
        "mise.toml",
        ".devcontainer/devcontainer.json",
        ".some-agent-of-next-year/rules.md",
        ".github/workflows/ci.yml",
        "opencode.json",
        "sub/opencode.jsonc",
        "crush.json",
        "AGENT.md",
        "lefthook-local.yml",
        "shell.nix",
        "mise/config.toml",
        "team.code-workspace",
        "docs/HEAD",
        "Jenkinsfile",
        "azure-pipelines.yml",
        "bitbucket-pipelines.yml",
        "GIT~1/config",
        "\u200c.git/config",
    ],
)
def test_a_write_that_decides_what_runs_later_always_asks(path: str) -> None:
    target = path if path.startswith("/") else f"/repo/{path}"
    assert outcome("write", target, "Edit", "accept-edits", allow=("Edit", "Edit(**)", "Edit(/home/me/**)")) == "ask"
    assert outcome("write", target, "Edit", "bypass") == "allow"


@pytest.mark.parametrize(
    "path",
    [
        "github/x",
        ".gitignore",
        "docs/.gitkeep",
        "README.md",
        "src/agents.py",
        "CHANGELOG.md",
        "default.json",
        "src/head.py",
        "package.json",
        "Makefile",
        "über uns.md",
        "promise/config.toml",
    ],
)
def test_a_file_that_nothing_obeys_does_not_ask(path: str) -> None:
    assert outcome("write", f"/repo/{path}", "Edit", "accept-edits") == "allow"


def test_a_project_in_a_hidden_folder_is_not_protected_as_a_whole() -> None:
    scope = PermissionScope(Path("/home/me/.config/nvim"), home=HOME)
    for path, expected in (("init.lua", "allow"), (".luarc.json", "ask")):
        access = Access("write", f"/home/me/.config/nvim/{path}")
        assert decide(PermissionRules(), "accept-edits", "Edit", access, scope).outcome == expected


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("src/**", ["/repo/src/a", "/repo/src/a/b"], ["/repo/a", "/repo/x/src/a", "/src/a", "/repo/srcs/a"]),
        ("src/*.py", ["/repo/src/a.py"], ["/repo/src/b/a.py", "/repo/src/a.pyc"]),
        ("*.py", ["/repo/a.py", "/repo/b/a.py"], ["/repo/a.pyc"]),
        ("src/", ["/repo/src/a", "/x/src/b"], ["/repo/srcs"]),
        ("src/**/a.py", ["/repo/src/a.py", "/repo/src/x/y/a.py"], ["/repo/src/b.py"]),
        ("/etc/**", ["/etc/a"], ["/repo/etc/a"]),
        ("//etc/hosts", ["/etc/hosts"], ["/etc/host"]),
        ("~/x", ["/home/me/x", "/home/me/x/y"], ["/repo/x"]),
        ("./a.py", ["/repo/a.py"], ["/repo/b/a.py"]),
        ("[ab].py", ["/repo/a.py"], ["/repo/c.py"]),
        ("a.b", ["/repo/a.b"], ["/repo/aXb"]),
    ],
)
def test_path_patterns_are_those_of_gitignore(pattern: str, matching: list[str], other: list[str]) -> None:
    for path in matching:
        assert outcome("write", path, "Edit", allow=(f"Edit({pattern})",)) == "allow", path
    for path in other:
        assert outcome("write", path, "Edit", allow=(f"Edit({pattern})",)) == "ask", path


@pytest.mark.requirement("S1")
@pytest.mark.parametrize(("rule", "name"), [("caf\u00e9.txt", "cafe\u0301.txt"), ("cafe\u0301.txt", "caf\u00e9.txt")])
def test_a_rule_holds_for_every_way_to_encode_a_name(rule: str, name: str) -> None:
    assert outcome("read", f"/repo/sub/{name}", "Read", deny=(f"Read({rule})",)) == "deny"
    assert outcome("run", f"cat sub/{name}", deny=(f"Read({rule})",)) == "deny"


def test_read_and_edit_speak_for_every_tool_that_reads_or_writes() -> None:
    assert outcome("write", "/repo/a", "Write", allow=("Edit(./a)",)) == "allow"
    assert outcome("read", "/repo/a", "Grep", deny=("Read(./a)",)) == "deny"
    assert outcome("write", "/repo/a", "Edit", allow=("Write(./a)",)) == "ask"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://docs.python.org/3/", "allow"),
        ("https://DOCS.python.org./", "allow"),
        ("https://docs.python.org.evil.com/", "ask"),
        ("https://docs.python.org@evil.com/", "ask"),
        ("https://evil.com\\@docs.python.org/", "ask"),
        ("https://evil.com/docs.python.org", "ask"),
        ("file://docs.python.org/etc", "ask"),
        ("https://a.readthedocs.io/", "allow"),
        ("https://evilreadthedocs.io/", "ask"),
    ],
)
def test_a_host_is_the_one_the_url_leads_to(url: str, expected: str) -> None:
    assert (
        outcome("fetch", url, "WebFetch", allow=("WebFetch(docs.python.org)", "WebFetch(*.readthedocs.io)")) == expected
    )


def test_rules_for_mcp_name_a_server_or_a_tool() -> None:
    for rule in ("mcp__s", "mcp__s__*", "mcp__s__t"):
        assert outcome("other", "", "mcp__s__t", allow=(rule,)) == "allow"
    assert outcome("other", "", "mcp__s2__t", allow=("mcp__s",)) == "ask"
    assert outcome("other", "", "mcp__s__u", allow=("mcp__s__t",)) == "ask"


RULES = st.lists(
    st.sampled_from(["Bash", "Bash(git push:*)", "Edit", "Edit(src/**)", "Read", "Read(.env)", "mcp__s"]), max_size=4
)
CALLS = st.sampled_from(
    [
        ("Bash", "run", "git push"),
        ("Bash", "run", "ls"),
        ("Edit", "write", "/repo/src/a"),
        ("Read", "read", "/repo/.env"),
        ("mcp__s__t", "other", ""),
    ]
)
MODES = st.sampled_from(["default", "accept-edits", "plan", "bypass"])


@given(deny=RULES, ask=RULES, allow=RULES, call=CALLS, mode=MODES)
def test_deny_goes_before_ask_and_ask_before_allow(
    deny: list[str], ask: list[str], allow: list[str], call: tuple[str, AccessKind, str], mode: Mode
) -> None:
    tool, kind, target = call
    found = verdict(kind, target, tool, mode, deny=tuple(deny), ask=tuple(ask), allow=tuple(allow))
    denied = verdict(kind, target, tool, "bypass", deny=tuple(deny)).outcome == "deny"
    assert (found.outcome == "deny" and found.by in deny) == denied
    if not denied and mode in ("default", "accept-edits"):
        asked = verdict(kind, target, tool, "bypass", deny=tuple(ask)).outcome == "deny"
        assert not asked or found.outcome == "ask"


@pytest.mark.parametrize(
    ("rule", "hint"),
    [
        ("Bash(git *)", "git commit:\\*"),
        ("Edit()", "brackets"),
        ("Edit(x", "Tool\\(pattern\\)"),
        ("", "Tool\\(pattern\\)"),
        ("rm -rf", "Tool\\(pattern\\)"),
        ("WebFetch(https://a.b)", "host"),
        ("mcp__s__t(x)", "no pattern"),
        ("Ba*", "star"),
    ],
)
def test_a_rule_that_cannot_be_read_says_what_one_looks_like(rule: str, hint: str) -> None:
    with pytest.raises(SettingsError, match=hint):
        verdict("none", "", allow=(rule,))


@pytest.mark.parametrize(
    ("tool", "kind", "target", "rule"),
    [
        ("Bash", "run", "git commit -m 'x y'", "Bash(git commit -m 'x y')"),
        ("Bash", "run", "git fetch origin", "Bash(git fetch origin)"),
        ("Bash", "run", "rm -r build", "Bash(rm -r build)"),
        ("Bash", "run", "pytest -x | tee log", "Bash(pytest -x | tee log)"),
        ("Bash", "run", "python3 a.py", "Bash(python3 a.py)"),
        ("Bash", "run", "git config core.pager x", "Bash(git config core.pager x)"),
        ("Edit", "write", "/repo/a.py", "Edit(./a.py)"),
        ("Read", "read", "/etc/hosts", "Read(/etc/hosts)"),
        ("WebFetch", "fetch", "https://a.b/c", "WebFetch(a.b)"),
        ("mcp__s__t", "other", "x", "mcp__s__t"),
    ],
)
def test_always_remembers_a_narrow_rule_that_allows_the_same_call(
    tool: str, kind: AccessKind, target: str, rule: str
) -> None:
    choices = rules_to_keep(tool, Access(kind, target), cwd=CWD, home=HOME)
    assert choices[0] == rule
    for choice in choices:
        assert outcome(kind, target, tool, allow=(choice,)) == "allow"


@pytest.mark.parametrize(
    ("tool", "kind", "target"),
    [
        ("Edit", "write", "/repo/.git/config"),
        ("Edit", "write", "/repo/a*"),
        ("Bash", "run", "rm *"),
        ("WebFetch", "fetch", "x"),
    ],
)
def test_what_cannot_be_remembered_narrowly_is_not(tool: str, kind: AccessKind, target: str) -> None:
    assert rules_to_keep(tool, Access(kind, target), cwd=CWD, home=HOME) == ()


SEEN = [
    "git add a.py", "git commit -m 'fix: it'", "git fetch origin", "git push", "git pull", "go test ./...",
    "go vet ./...", "npm test", "cargo test", "npm ci", "git merge main", "make", "python3 a.py",
]  # fmt: skip
SMUGGLED = [
    "--upload-pack='touch PWNED' .", "--receive-pack=x", "-exec x", "-exec=x", "-vettool=x", "--script-shell x", "-c x",
    "--config=x", "--exec x", "-- --x", "../other", "/etc/passwd", "~/x", "ext::sh", "host:path", "SHELL=x", "+main",
    "@options", "'-exec' x", "a.py --x", "*", "-*", "; x", "> x", "$(x)", "< a",
]  # fmt: skip


@pytest.mark.parametrize("seen", SEEN)
def test_always_allows_no_option_that_nobody_saw(seen: str) -> None:
    kept = rules_to_keep("Bash", Access("run", seen), cwd=CWD, home=HOME)
    assert kept
    assert outcome("run", seen, allow=kept) == "allow"
    program = " ".join(seen.split()[:2])
    for more in SMUGGLED:
        for line in (f"{seen} {more}", f"{program} {more}"):
            assert outcome("run", line, allow=kept) == "ask", (kept, line)


def test_a_prefix_by_second_word_alone_lets_them_in() -> None:
    assert outcome("run", "git fetch --upload-pack='touch PWNED' .", allow=("Bash(git fetch:*)",)) == "allow"


def test_a_prefix_that_was_shown_covers_other_words() -> None:
    kept = rules_to_keep("Bash", Access("run", "go test ./..."), cwd=CWD, home=HOME)
    assert kept == ("Bash(go test ./...)", "Bash(go test:words)")
    assert outcome("run", "go test ./cmd pkg", allow=kept) == "allow"
    kept = rules_to_keep("Bash", Access("run", "git commit -m one"), cwd=CWD, home=HOME)
    assert outcome("run", "git commit -m 'two: three' a.py", allow=kept) == "allow"
    assert outcome("run", "git commit -m --no-verify", allow=kept) == "ask"
