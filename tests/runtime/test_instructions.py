"""Instruction files load from the user's down to the working directory's, and nested ones on access."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.runtime.instructions.reader import InstructionFile, InstructionSet, NestedInstructions, gather


@dataclass
class Place:
    """A person's directories: Reverie's home, their own, and a project inside it."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "reverie-home"

    @property
    def user(self) -> Path:
        return self.root / "person"

    @property
    def project(self) -> Path:
        return self.user / "code" / "project"

    def write(self, files: dict[str, str]) -> None:
        """Write files by their path under the root."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def gather(self, cwd: Path | None = None, *, consent: bool | Callable[[str], bool] = False) -> InstructionSet:
        return gather(cwd or self.project, home=self.home, consent=consent, user_home=self.user)

    def named(self, files: Iterable[InstructionFile]) -> list[str]:
        """Return the paths of files of this place, relative to its root."""
        return [os.path.relpath(file.path, self.root) for file in files if file.path.startswith(str(self.root))]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path.resolve())
    (place.project / ".git").mkdir(parents=True)
    place.home.mkdir()
    return place


# -- N1


@pytest.mark.requirement("N1")
def test_files_come_from_the_users_and_then_from_the_root_down(place: Place) -> None:
    place.write(
        {
            "reverie-home/AGENTS.md": "mine",
            "person/AGENTS.md": "person",
            "person/code/CLAUDE.md": "code",
            "person/code/project/.claude/rules/z.md": "rule z",
            "person/code/project/.claude/rules/deep/a.md": "rule a",
            "person/code/project/CLAUDE.local.md": "local",
            "person/code/project/.claude/CLAUDE.md": "inner",
            "person/code/project/CLAUDE.md": "claude",
            "person/code/project/AGENTS.md": "agents",
            "person/code/project/src/AGENTS.md": "not yet",
        }
    )
    found = place.gather()
    assert place.named(found.files) == [
        "reverie-home/AGENTS.md",
        "person/AGENTS.md",
        "person/code/CLAUDE.md",
        "person/code/project/AGENTS.md",
        "person/code/project/CLAUDE.md",
        "person/code/project/.claude/CLAUDE.md",
        "person/code/project/CLAUDE.local.md",
        "person/code/project/.claude/rules/z.md",
        "person/code/project/.claude/rules/deep/a.md",
    ]
    kinds = [file.kind for file in found.files if file.path.startswith(str(place.root))]
    assert kinds == ["user", "project", "project", "project", "project", "project", "local", "rule", "rule"]
    assert found.files == place.gather().files


@pytest.mark.requirement("N1")
def test_the_users_file_is_reveries_or_else_claudes(place: Place) -> None:
    place.write({"person/.claude/CLAUDE.md": "the other program's"})
    assert [(file.kind, file.text) for file in place.gather().files if "person" in file.path] == [
        ("user", "the other program's")
    ]
    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    assert place.named(place.gather(elsewhere).files) == ["person/.claude/CLAUDE.md"]
    place.write({"reverie-home/AGENTS.md": "ours"})
    assert place.named(place.gather(elsewhere).files) == ["reverie-home/AGENTS.md"]


@pytest.mark.requirement("N1")
def test_the_same_text_is_loaded_once(place: Place) -> None:
    place.write({"person/code/project/AGENTS.md": "same\n", "person/code/project/.claude/CLAUDE.md": "\nsame"})
    (place.project / "CLAUDE.md").symlink_to("AGENTS.md")
    found = place.gather()
    assert place.named(found.files) == ["person/code/project/AGENTS.md"]
    assert found.problems == []


def test_empty_files_and_those_of_comments_alone_say_nothing(place: Place) -> None:
    place.write({"person/code/project/AGENTS.md": " \n", "person/code/project/CLAUDE.md": "<!-- for people -->\n"})
    assert place.named(place.gather().files) == []


# -- N3


@pytest.mark.requirement("N3")
def test_imports_are_followed_four_hops_and_no_further(place: Place) -> None:
    chain = {f"person/code/project/{n}.md": f"file {n}, see @{n + 1}.md" for n in range(1, 7)}
    place.write({"person/code/project/AGENTS.md": "see @1.md", **chain})
    found = place.gather()
    assert place.named(found.files)[1:] == [f"person/code/project/{n}.md" for n in (1, 2, 3, 4)]
    assert [file.kind for file in found.files[-4:]] == ["import"] * 4
    assert found.files[-1].parent.endswith("/3.md")
    assert len(found.problems) == 1
    assert "5.md is more than 4 imports deep" in found.problems[0]


@pytest.mark.requirement("N3")
def test_circles_end(place: Place) -> None:
    place.write(
        {
            "person/code/project/AGENTS.md": "a @docs/b.md @AGENTS.md",
            "person/code/project/docs/b.md": "b @../AGENTS.md @./b.md @c.md",
            "person/code/project/docs/c.md": "c @../docs/../AGENTS.md",
        }
    )
    found = place.gather()
    assert [Path(name).name for name in place.named(found.files)] == ["AGENTS.md", "b.md", "c.md"]
    assert found.problems == []


@given(st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=4)))
@pytest.mark.slow
def test_any_graph_of_imports_is_read_once_each_and_ends(
    tmp_path_factory: pytest.TempPathFactory, graph: dict[int, list[int]]
) -> None:
    place = Place(tmp_path_factory.mktemp("graph").resolve())
    (place.project / ".git").mkdir(parents=True)
    files = {f"{n}.md": f"file {n}: " + " ".join(f"@{other}.md" for other in to) for n, to in graph.items()}
    place.write({f"person/code/project/{name}": text for name, text in files.items()})
    place.write({"person/code/project/AGENTS.md": "start @0.md"})
    named = place.named(place.gather().files)
    assert len(set(named)) == len(named)
    reached, edge = set[int](), {0} & graph.keys()
    for _ in range(4):
        reached |= edge
        edge = {other for n in edge for other in graph[n] if other in graph} - reached
    assert {Path(name).stem for name in named} <= {"AGENTS", *map(str, reached)}


@pytest.mark.requirement("N3")
@pytest.mark.parametrize("way", ["absolute", "parent", "home", "link", "linked file", "linked folder"])
def test_what_lies_outside_the_project_is_read_only_with_consent(place: Place, way: str) -> None:
    place.write({"person/secret/key.md": "the secret", "person/code/project/AGENTS.md": "project"})
    secret = place.user / "secret" / "key.md"
    project = "person/code/project"
    match way:
        case "absolute":
            place.write({f"{project}/AGENTS.md": f"see @{secret}"})
        case "parent":
            place.write({f"{project}/AGENTS.md": "see @../../secret/key.md"})
        case "home":
            place.write({f"{project}/AGENTS.md": "see @~/secret/key.md"})
        case "link":
            (place.project / "inside.md").symlink_to(secret)
            place.write({f"{project}/AGENTS.md": "see @inside.md"})
        case "linked file":
            (place.project / "CLAUDE.md").symlink_to(secret)
        case _:
            (place.project / ".claude").mkdir()
            (place.project / ".claude" / "rules").symlink_to(secret.parent)
    refused = place.gather()
    assert not any("the secret" in file.text for file in refused.files)
    assert any("outside the project" in problem for problem in refused.problems)
    assert any(file.path.endswith("project/AGENTS.md") for file in refused.files), "the rest is used"
    assert any("the secret" in file.text for file in place.gather(consent=True).files)
    asked: list[str] = []
    place.gather(consent=lambda path: bool(asked.append(path)))
    assert asked == [str(secret)]


@pytest.mark.requirement("N3")
def test_only_the_users_own_file_may_import_anything_and_it_lends_that_to_nobody(place: Place) -> None:
    place.write(
        {
            "person/secret/key.md": "the secret",
            "person/notes/mine.md": "my notes",
            "reverie-home/AGENTS.md": f"see @{place.user}/notes/mine.md and @{place.project}/theirs.md",
            "person/code/project/theirs.md": f"theirs, see @{place.user}/secret/key.md",
        }
    )
    found = place.gather()
    texts = " ".join(file.text for file in found.files)
    assert "my notes" in texts
    assert "theirs" in texts
    assert "the secret" not in texts


@pytest.mark.requirement("N3")
def test_a_long_file_is_used_with_a_warning_and_a_huge_one_skipped(place: Place) -> None:
    place.write(
        {
            "person/code/project/AGENTS.md": "x" * 40_001,
            "person/code/project/CLAUDE.md": "y" * 40_000,
            "person/code/project/CLAUDE.local.md": "z" * (4 * 1024 * 1024 + 1),
            "person/code/project/.claude/CLAUDE.md": "w" * (4 * 1024 * 1024),
        }
    )
    found = place.gather()
    assert [len(file.text) for file in found.files if "project" in file.path] == [40_001, 40_000, 4 * 1024 * 1024]
    assert [problem.split(": ")[1][:15] for problem in found.problems] == [
        "it has 40,001 c",
        "it has 4,194,30",
        "it is larger th",
    ]


def test_a_name_that_is_no_file_is_a_mention_and_a_path_that_is_none_a_problem(place: Place) -> None:
    place.write({"person/code/project/AGENTS.md": "ask @alice about @docs/missing.md"})
    assert [problem.partition("imports ")[2] for problem in place.gather().problems] == [
        "docs/missing.md, which does not exist"
    ]


# -- N4


@pytest.mark.requirement("N4")
@pytest.mark.parametrize("way", ["fifo", "directory", "bytes", "nul", "loop", "nowhere", "front matter", "long name"])
def test_what_cannot_be_read_is_noted_and_the_rest_is_used(place: Place, way: str) -> None:
    place.write({"person/code/project/AGENTS.md": "the rest"})
    broken = place.project / "CLAUDE.md"
    match way:
        case "fifo":
            os.mkfifo(broken)
        case "directory":
            broken.mkdir()
        case "bytes":
            broken.write_bytes(b"\xff\xfe\x00\x80")
        case "nul":
            broken.write_bytes(b"a\0b")
        case "loop":
            broken.symlink_to("CLAUDE.md")
        case "nowhere":
            broken.symlink_to("nothing-here")
        case "front matter":
            place.write({"person/code/project/.claude/rules/r.md": "---\npaths: &x\nnever closed"})
        case _:
            place.write({"person/code/project/AGENTS.md": f"the rest, and @{'x' * 300}.md"})
    found = place.gather()
    assert [Path(name).name for name in place.named(found.files)] == ["AGENTS.md"]
    assert len(found.problems) == 1


@pytest.mark.requirement("N4")
@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices here")
def test_a_device_is_refused_even_with_consent(place: Place) -> None:
    place.write({"person/code/project/AGENTS.md": "see @/dev/zero"})
    found = place.gather(consent=True)
    assert place.named(found.files) == ["person/code/project/AGENTS.md"]
    assert any("not a regular file" in problem for problem in found.problems)


@pytest.mark.requirement("N4")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_one_may_not_read_is_noted(place: Place) -> None:
    place.write({"person/code/project/AGENTS.md": "a", "person/code/project/CLAUDE.md": "b"})
    (place.project / "CLAUDE.md").chmod(0)
    assert "cannot be read" in place.gather().problems[0]


def test_a_file_of_another_user_above_the_project_is_left_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write({"person/AGENTS.md": "above", "person/code/project/AGENTS.md": "inside"})
    owner = os.stat(place.root).st_uid
    if owner == 0:
        os.chown(place.user / "AGENTS.md", 12_345, -1)
        os.chown(place.project / "AGENTS.md", 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    found = place.gather()
    assert place.named(found.files) == ["person/code/project/AGENTS.md"]
    assert any("belongs to another user" in problem for problem in found.problems)


# -- N2


@dataclass
class Reads:
    """The nested files that a session said, in order."""

    registered: dict[str, str] = field(default_factory=dict[str, str])

    def pending(self, nested: NestedInstructions, permission: Callable[[str], bool]) -> list[InstructionFile]:
        """Return the files that hold now and were not said before, and note them as said."""
        found = [file for file in nested.current(self.registered, permission) if file.path not in self.registered]
        self.registered |= {file.path: file.text for file in found}
        return found


def anything(path: str) -> bool:
    return True


@pytest.fixture
def nested(place: Place) -> NestedInstructions:
    place.write(
        {
            "person/code/project/AGENTS.md": "top",
            "person/code/project/app/AGENTS.md": "app",
            "person/code/project/app/ui/CLAUDE.md": "ui",
            "person/code/project/app/ui/.claude/rules/always.md": "ui always",
            "person/code/project/app/ui/.claude/rules/tests.md": "---\npaths: '**/*_test.py'\n---\nui tests",
            "person/code/project/lib/AGENTS.md": "lib",
            "person/code/project/.claude/rules/python.md": "---\npaths: '**/*.py'\n---\npython",
            "person/code/project/.claude/rules/docs.md": "---\npaths: 'docs/**'\n---\ndocs",
            "person/code/.claude/rules/all.md": "---\npaths: project/**/*.py\n---\nall projects",
        }
    )
    return NestedInstructions(place.project, place.gather(), user_home=place.user)


@pytest.mark.requirement("N2")
def test_rules_with_paths_and_files_below_are_not_there_at_the_start(place: Place, nested: NestedInstructions) -> None:
    assert place.named(place.gather().files) == ["person/code/project/AGENTS.md"]
    assert Reads().pending(nested, anything) == []


@pytest.mark.requirement("N2")
def test_touching_a_file_attaches_what_stands_near_it_nested_first(place: Place, nested: NestedInstructions) -> None:
    nested.touched([str(place.project / "app" / "ui" / "button.py")])
    found = Reads().pending(nested, anything)
    assert [file.text for file in found] == ["app", "ui", "ui always", "all projects", "python"]


@pytest.mark.requirement("N2")
def test_triggers_are_handled_in_the_order_of_their_paths_and_then_cleared(
    place: Place, nested: NestedInstructions
) -> None:
    reads = Reads()
    nested.touched([place.project / "lib" / "a.txt"])
    nested.touched([place.project / "docs" / "guide.txt", place.project / "app" / "ui" / "x_test.py"])
    assert [file.text for file in reads.pending(nested, anything)] == [
        *("app", "ui", "ui always", "ui tests", "all projects", "python"),
        "docs",
        "lib",
    ]
    assert reads.pending(nested, anything) == [], "all of them were said"
    reads.registered.clear()
    assert reads.pending(nested, anything) == [], "the triggers were cleared"


@pytest.mark.requirement("N2", "W4")
def test_a_question_after_which_nothing_is_said_loses_no_file(place: Place, nested: NestedInstructions) -> None:
    """A draft of a compaction asks what would be said, and the request after it asks again."""
    reads = Reads()
    nested.touched([place.project / "lib" / "a.txt"])
    assert [file.text for file in nested.current([], anything)] == ["lib"]
    nested.touched([place.project / "docs" / "guide.txt"])
    assert [file.text for file in reads.pending(nested, anything)] == ["docs", "lib"]
    assert reads.pending(nested, anything) == []


@pytest.mark.requirement("N2")
def test_each_is_attached_once_while_it_stands_in_the_view_and_again_after_a_compaction(
    place: Place, nested: NestedInstructions
) -> None:
    reads = Reads()

    def touch() -> list[str]:
        nested.touched([place.project / "lib" / "a.txt"])
        return [file.text for file in reads.pending(nested, anything)]

    assert [touch(), touch(), touch()] == [["lib"], [], []]
    assert reads.registered == {str(place.project / "lib" / "AGENTS.md"): "lib"}
    reads.registered.clear()
    assert [touch(), touch()] == [["lib"], []]


@pytest.mark.requirement("N2")
def test_permission_is_checked_before_anything_is_read(place: Place, nested: NestedInstructions) -> None:
    asked: list[str] = []

    def refuse(path: str) -> bool:
        asked.append(os.path.relpath(path, place.project))
        return False

    nested.touched([place.project / "lib" / "a.txt"])
    reads = Reads()
    assert reads.pending(nested, refuse) == []
    assert reads.registered == {}
    assert "lib/AGENTS.md" in asked
    assert any("not permitted" in problem for problem in nested.problems)
    nested.touched([place.project / "lib" / "a.txt"])
    assert [file.text for file in reads.pending(nested, anything)] == ["lib"]


@pytest.mark.requirement("N2", "N3")
def test_nested_files_import_and_what_leads_outside_needs_consent_there_too(place: Place) -> None:
    place.write(
        {
            "person/secret.md": "the secret",
            "person/code/project/lib/AGENTS.md": "lib @more.md @~/secret.md",
            "person/code/project/lib/more.md": "more",
        }
    )
    nested = NestedInstructions(place.project, InstructionSet(), user_home=place.user)
    nested.touched([place.project / "lib" / "a.txt"])
    assert [file.text.split()[0] for file in Reads().pending(nested, anything)] == ["lib", "more"]
    assert any("outside the project" in problem for problem in nested.problems)


@pytest.mark.requirement("N1", "N2")
def test_a_text_that_stands_in_the_view_is_not_attached_again_under_another_path(place: Place) -> None:
    place.write({f"person/code/project/{name}AGENTS.md": "the same" for name in ("", "a/", "b/")})
    place.write({"person/code/project/b/CLAUDE.md": "b", "person/code/project/c/CLAUDE.md": "b"})
    nested = NestedInstructions(place.project, place.gather(), user_home=place.user)
    reads = Reads()
    for name, texts in (("a", []), ("b", ["b"]), ("c", [])):
        nested.touched([place.project / name / "x"])
        assert [file.text for file in reads.pending(nested, anything)] == texts
    reads.registered.clear()
    nested.touched([place.project / "c" / "x"])
    assert [file.text for file in reads.pending(nested, anything)] == ["b"]


def test_a_file_outside_the_working_directory_attaches_only_rules_that_are_for_it(
    place: Place, nested: NestedInstructions
) -> None:
    inside = NestedInstructions(place.project / "app", place.gather(place.project / "app"), user_home=place.user)
    inside.touched([place.project / "lib" / "a.py", place.root / "elsewhere.py", "ui/relative.txt"])
    assert [file.text for file in Reads().pending(inside, anything)] == [
        *("ui", "ui always"),
        *("all projects", "python"),
    ]


def test_a_rule_is_read_once_however_many_files_were_touched(place: Place, nested: NestedInstructions) -> None:
    os.mkfifo(place.project / ".claude" / "rules" / "pipe.md")
    nested.touched([place.project / "lib" / f"{n}.txt" for n in range(50)])
    assert [file.text for file in Reads().pending(nested, anything)] == ["lib"]
    assert len(nested.problems) == 1


@pytest.mark.requirement("W2", "N2")
def test_a_nested_file_that_was_said_holds_as_it_is_now_until_it_is_removed(
    place: Place, nested: NestedInstructions
) -> None:
    said = [place.project / "lib" / "AGENTS.md", place.project / "app" / "ui" / ".claude" / "rules" / "tests.md"]
    place.write({"person/code/project/lib/AGENTS.md": "lib two"})
    known = [str(path) for path in said]
    assert [file.text for file in nested.current(known, anything)] == ["lib two", "ui tests"]
    said[0].unlink()
    assert [file.text for file in nested.current(known, anything)] == ["ui tests"]


DIRECTORIES = st.lists(st.sampled_from(["a", "a/b", "a/b/c", "d", "."]), max_size=8)


def forgetful(nested: NestedInstructions, reads: Reads) -> list[InstructionFile]:
    """The known-bad twin: it forgets to look at what stands in the view."""
    return Reads().pending(nested, anything)


def attached_twice(
    place: Place, touches: list[str], pending: Callable[[NestedInstructions, Reads], list[InstructionFile]]
) -> bool:
    place.write({f"person/code/project/{name}/AGENTS.md": f"of {name}" for name in ("a", "a/b", "a/b/c", "d")})
    nested, reads = NestedInstructions(place.project, place.gather(), user_home=place.user), Reads()
    found: list[str] = []
    for name in touches:
        nested.touched([place.project / name / "file"])
        found += [file.path for file in pending(nested, reads)]
    return len(set(found)) != len(found)


@pytest.mark.requirement("N2")
@given(DIRECTORIES)
@pytest.mark.slow
def test_whatever_is_touched_nothing_is_attached_twice(
    tmp_path_factory: pytest.TempPathFactory, touches: list[str]
) -> None:
    place = Place(tmp_path_factory.mktemp("touched").resolve())
    (place.project / ".git").mkdir(parents=True)
    assert not attached_twice(place, touches, lambda nested, reads: reads.pending(nested, anything))


def test_the_twin_that_forgets_is_caught(place: Place) -> None:
    assert attached_twice(place, ["a", "a"], forgetful)
