"""Two people share memories through git: no conflict marker, nothing lost, and no setting of the repository counts."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reverie.cli.main import run
from reverie.errors import InputError
from reverie.memories.store.index import lines_of
from reverie.runtime.memory.memory import Memory
from reverie.runtime.memory.team_sync import TeamSync

pytestmark = pytest.mark.slow


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Person:
    """Somebody with a clone of the team's repository."""

    def __init__(self, folder: Path, name: str, remote: Path) -> None:
        self.team, self.home = folder / name / "team", folder / name / "home"
        git(folder, "clone", "--quiet", str(remote), str(self.team))
        self.home.mkdir()
        self.memory = Memory(folder / name / "memory", team=self.team)
        self.sync = TeamSync(self.team, self.home)

    def save(self, text: str, name: str) -> str:
        saved = self.memory.save(text, type="project", name=name, why="agreed in the team", scope="team")
        return saved.file.removeprefix("team/")

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.team.glob("*.md") if path.name != "MEMORY.md"}

    def is_right(self) -> bool:
        """Return whether the index lists exactly the files, and nothing has a marker."""
        index = (self.team / "MEMORY.md").read_text()
        texts = [index, *self.files().values()]
        assert not any(marker in text for text in texts for marker in ("<<<<<<<", ">>>>>>>"))
        return sorted(line.file for line in lines_of(index)) == sorted(self.files())


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Person, Person]:
    (tmp_path / "userhome").mkdir()
    (tmp_path / "userhome" / ".gitconfig").write_text(
        "[user]\n\tname = Ada Low\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path / "userhome"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", "-b", "main", str(remote))
    found = Person(tmp_path, "ada", remote), Person(tmp_path, "ben", remote)
    for one in found:
        one.sync.agree(str(remote))
    return found


@pytest.mark.parametrize("is_there", [False, True])
def test_a_folder_without_a_repository_is_an_error_that_says_what_to_do(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "team"
    if is_there:
        folder.mkdir()
    with pytest.raises(InputError, match="clone your team's"):
        TeamSync(folder, tmp_path)


def test_a_dry_run_names_the_files_to_send_and_writes_nothing_here_or_there(
    people: tuple[Person, Person], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ada, ben = people
    remote = ada.sync.agreed_remote

    def everything() -> dict[str, bytes]:
        places = (ada.team, ada.home, Path(remote))
        return {str(path): path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}

    first = ada.save("The ward of floor 1 has 3 beds", "ward")
    before = everything()
    result, has_news = ada.sync.preview(remote)
    assert (result.sent, has_news, everything() == before) == ((first,), False, True)
    ada.sync.run()
    assert ada.sync.preview(remote)[0].sent == ()
    ben.save("The lab closes at 15 hours", "lab")
    ben.sync.run()
    second = ada.save("The ward of floor 2 has 4 beds", "ward 2")
    before = everything()
    result, has_news = ada.sync.preview(remote)
    monkeypatch.setenv("REVERIE_HOME", str(ada.home))
    monkeypatch.setenv("REVERIE_TEAM_MEMORY", str(ada.team))
    assert run(["memory", "sync", "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{remote}: would send 1 file; it has changes of others.\n"
    assert (result.sent, has_news, everything() == before) == ((second,), True, True)
    with pytest.raises(InputError, match="cannot be reached"):
        ada.sync.preview(str(ada.home / "nowhere"))


@pytest.mark.requirement("M12")
def test_twelve_memories_of_two_people_survive_five_merges(people: tuple[Person, Person]) -> None:
    ada, ben = people
    for turn in range(6):
        ada.save(f"The ward of floor {turn} has {turn + 3} beds and one nurse", f"ward {turn}")
        ben.save(f"The lab of floor {turn} closes at {turn + 15} hours", f"lab {turn}")
        for one in (ada, ben):
            result = one.sync.run()
            assert one.is_right()
            assert len(result.received) == (one is ben or turn > 0), "an empty clone receives too"
    ada.sync.run()
    assert int(git(ada.team, "rev-list", "--merges", "--count", "HEAD")) >= 5
    assert ben.sync.run().sent == (), "nothing new, nothing sent"
    assert git(ben.team, "rev-parse", "HEAD") == git(ada.team, "rev-parse", "HEAD")
    assert len(ada.files()) == 12
    assert ada.files() == ben.files()
    assert (ada.team / "MEMORY.md").read_text() == (ben.team / "MEMORY.md").read_text()
    assert git(ada.team, "status", "--porcelain") == ""
    assert "Ada Low" in git(ada.team, "log", "--format=%an")
    assert not [path for path in git(ada.team, "ls-files").split() if ".journal" in path]


@pytest.mark.requirement("M12")
def test_a_merge_with_a_file_that_must_not_be_shared_is_undone(people: tuple[Person, Person]) -> None:
    ada, ben = people
    file = ada.save("The ward has 3 beds", "ward")
    ada.sync.run()
    ben.sync.run()
    text = (ben.team / file).read_text()
    (ben.team / file).write_text(text.replace("3 beds", "4 beds"))
    (ben.team / "key.md").write_text(text.replace("3 beds", "the key AKIA" + "QWERTYUIOPASDFGH"))
    git(ben.team, "add", "-A")
    git(ben.team, "commit", "-qm", "by hand")
    git(ben.team, "push", "-q", "origin", "HEAD:main")
    ada.memory.update(f"team/{file}", "The ward has 5 beds")
    for _ in range(2):
        with pytest.raises(InputError, match=r"key\.md"):
            ada.sync.run()
        assert git(ada.team, "status", "--porcelain") == ""
    git(ben.team, "rm", "-q", "key.md")
    git(ben.team, "commit", "-qm", "it is gone")
    git(ben.team, "push", "-q", "origin", "HEAD:main")
    assert len(ada.sync.run().both) == 1
    assert ada.is_right()


@pytest.mark.requirement("M12")
def test_the_users_settings_may_be_in_another_file(
    people: tuple[Person, Person], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, _ = people
    remote = git(ada.team, "remote", "get-url", "origin")
    (tmp_path / "who").write_text("[user]\n\tname = Eve Moss\n\temail = eve@example.org\n")
    (tmp_path / "settings").write_text(f'[include]\n\tpath = who\n[url "{remote}"]\n\tinsteadOf = team:\n')
    (tmp_path / "userhome" / ".gitconfig").unlink()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "settings"))
    git(ada.team, "config", "user.name", "the repository's own")
    git(ada.team, "remote", "set-url", "origin", "team:")
    ada.sync.agree("team:")
    ada.save("The ward has 3 beds", "ward")
    assert ada.sync.run().sent
    assert git(ada.team, "log", "--format=%an <%ae> %cn <%ce>") == " ".join(2 * ["Eve Moss <eve@example.org>"])
    assert int(git(Path(remote), "rev-list", "--count", "main")) == 1


@pytest.mark.requirement("M12")
def test_plain_git_merges_leave_no_marker_and_an_index_of_the_files(people: tuple[Person, Person]) -> None:
    ada, ben = people
    ada.save("The rota of the ward is on the door", "rota")
    ada.sync.run()
    ben.sync.run()
    for turn in range(5):
        for one, name in ((ada, "ward"), (ben, "lab")):
            one.save(f"The {name} of floor {turn} has {turn + 3} rooms", f"{name} {turn}")
            git(one.team, "add", "-A")
            git(one.team, "commit", "-qm", f"{name} {turn}")
        git(ada.team, "push", "-q", "origin", "HEAD:main")
        git(ben.team, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
        assert ben.is_right()
        git(ben.team, "push", "-q", "origin", "HEAD:main")
        git(ada.team, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
    assert len(ben.files()) == 11


@pytest.mark.requirement("M10", "M12")
def test_a_memory_that_both_changed_is_kept_in_both_versions_and_one_removed_is_kept(
    people: tuple[Person, Person],
) -> None:
    ada, ben = people
    file, other = ada.save("Beds are counted at six", "beds"), ada.save("Keys hang in room 9", "keys")
    ada.sync.run()
    ben.sync.run()
    ada.memory.update(f"team/{file}", "Beds are counted at seven")
    ben.memory.update(f"team/{file}", "Beds are counted at eight\r\n")
    ada.memory.forget(f"team/{other}")
    ben.memory.update(f"team/{other}", "Keys hang in room 10")
    ada.sync.run()
    done = ben.sync.run()
    ada.sync.run()
    assert len(done.both) == 1
    texts = ben.files()
    assert "seven" in texts[file]
    assert "eight" in texts[done.both[0]]
    assert "(conflict)" in texts[done.both[0]]
    for person in people:  # both are asked, until one version is left
        asked = [one.file for one in person.memory.lint() if "second version" in one.problem]
        assert asked == [f"team/{done.both[0]}"]
    assert "room 10" in texts[other], "a change is not lost by a removal"
    assert ada.files() == texts
    assert ada.is_right()


@pytest.mark.requirement("M12")
@pytest.mark.parametrize("is_plain", [False, True])
def test_a_memory_that_replaces_a_similar_one_is_not_mixed_with_a_change_of_that(
    people: tuple[Person, Person], is_plain: bool
) -> None:
    ada, ben = people
    text = "\n".join(f"The ward of floor {floor} has {floor + 3} beds and one nurse." for floor in range(30))
    old = ada.save(text, "wards")
    ada.sync.run()
    ben.sync.run()
    ada.memory.forget(f"team/{old}")
    new = ada.save(text.replace("has 7 beds", "has 70 beds"), "beds")
    ben.memory.update(f"team/{old}", text.replace("has 7 beds", "has 99 beds"))
    ada.sync.run()
    if is_plain:
        git(ben.team, "add", "-A")
        git(ben.team, "commit", "-qm", "by hand")
        git(ben.team, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
    ben.sync.run()
    ada.sync.run()
    assert "has 70 beds" in ben.files()[new]
    assert is_plain or "has 99 beds" in ben.files()[old], "a change is not lost by a removal"
    assert not [one for one in ada.memory.lint() if "cannot be read" in one.problem]
    assert ada.files() == ben.files()


@pytest.mark.requirement("M12")
def test_no_program_and_no_address_of_the_repository_is_used(people: tuple[Person, Person], tmp_path: Path) -> None:
    ada, _ = people
    ada.save("Gloves are in the cupboard", "gloves")
    mark, hooks = tmp_path / "ran", ada.team / ".git" / "hooks"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    for name in ("pre-commit", "post-commit", "pre-push", "post-merge", "reference-transaction"):
        (hooks / name).write_text(script.read_text())
        (hooks / name).chmod(0o755)
    settings = {
        "core.sshCommand": str(script),
        "core.fsmonitor": str(script),
        "credential.helper": str(script),
        "core.hooksPath": str(hooks),
        "remote.origin.url": f"ext::{script}",
        "remote.origin.uploadpack": str(script),
        "remote.origin.receivepack": str(script),
        f"url.ext::{script}.insteadOf": str(tmp_path),
        "commit.gpgSign": "true",
        "gpg.program": str(script),
    }
    for key, value in settings.items():
        git(ada.team, "config", key, value)
    done = ada.sync.run()
    assert "project_gloves.md" in done.sent
    assert not mark.exists()
    with pytest.raises(InputError, match="not an address"):
        ada.sync.agree(ada.sync.named_remote)


@pytest.mark.requirement("M12")
def test_nothing_private_torn_or_secret_is_sent(people: tuple[Person, Person]) -> None:
    ada, ben = people
    ada.save("Gloves are in the cupboard", "gloves")
    wrong = {
        "user_ada.md": "---\nname: Ada\ntype: user\n---\nAda works at night.\n",
        "project_torn.md": "---\nname: x\n---\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> other\n",
        "project_key.md": "---\nname: key\n---\nAKIA" + "QYLPMN5HHHFPZAM2" + " is the access key\n",
    }
    for name, text in wrong.items():
        (ada.team / name).write_text(text)
        with pytest.raises(InputError):
            ada.sync.run()
        os.unlink(ada.team / name)
    ada.sync.run()
    ben.sync.run()
    assert set(ben.files()) == {"project_gloves.md"}


@pytest.mark.requirement("M12")
def test_only_memories_are_sent_and_other_files_of_the_folder_stay_as_they_are(people: tuple[Person, Person]) -> None:
    ada, ben = people
    ada.save("Gloves are in the cupboard", "gloves")
    (ada.team / ".env").write_text("PASSWORD=hunter2Sturm99!\n")
    (ada.team / "notes.txt").write_text("mine\n")
    (ada.team / "link.md").symlink_to("/dev/zero")
    ada.sync.run()
    assert not {".env", "notes.txt"} & set(git(ada.team, "ls-files").split("\n"))
    (ada.team / "sub").mkdir()
    wrong = {"user.md": "user", "twice.md": "user\ntype: user", "upper.md": "User", "user!.md": "user"}
    for name, type_name in wrong.items():
        path = ada.team / "sub" / name
        path.write_text(f"---\nname: Ada\ntype: {type_name}\n---\nAda works at night.\n")
        with pytest.raises(InputError, match=f"sub/{name}.*about"):
            ada.sync.run()
        path.unlink()
    ben.sync.run()
    text = (ben.team / "project_gloves.md").read_text()
    (ben.team / "project_gloves.md").write_text(text.replace("cupboard", "cellar"))
    (ben.team / "key.md").write_text("AKIA" + "QWERTYUIOPASDFGH\n")
    git(ben.team, "add", "-A")
    git(ben.team, "commit", "-qm", "by hand")
    git(ben.team, "push", "-q", "origin", "HEAD:main")
    ada.memory.update("team/project_gloves.md", "Gloves are in the attic")
    with pytest.raises(InputError, match=r"key\.md"):
        ada.sync.run()
    assert (ada.team / ".env").read_text() + (ada.team / "notes.txt").read_text() == "PASSWORD=hunter2Sturm99!\nmine\n"


@pytest.mark.requirement("M12")
def test_a_remote_cannot_replace_the_journal(people: tuple[Person, Person]) -> None:
    ada, ben = people
    ada.save("Gloves are in the cupboard", "gloves")
    ada.sync.run()
    ben.sync.run()
    ben.save("Masks are on the shelf", "masks")
    journal = ada.team / ".journal" / "journal.jsonl"
    before = journal.read_bytes()
    git(ben.team, "add", "--force", "-A")
    git(ben.team, "commit", "-qm", "with the journal")
    git(ben.team, "push", "-q", "origin", "HEAD:main")
    with pytest.raises(InputError, match=r"\.journal, the journal of one user"):
        ada.sync.run()
    assert journal.read_bytes() == before
    git(ben.team, "rm", "-rq", "--cached", ".journal")
    git(ben.team, "commit", "-qm", "without")
    git(ben.team, "push", "-q", "origin", "HEAD:main")
    assert ada.sync.run().received == ("project_masks.md",)


@pytest.mark.requirement("M12")
@pytest.mark.parametrize("is_sent", [False, True])
def test_a_memory_that_plain_git_merged_line_by_line_becomes_both_versions_at_the_next_sync(
    people: tuple[Person, Person], is_sent: bool
) -> None:
    ada, ben = people
    file = ada.save("Beds are counted at six", "beds")
    ada.sync.run()
    ben.sync.run()
    for one, hour in ((ada, "seven"), (ben, "eight")):
        text = (one.team / file).read_text()
        changed = text.replace("description: Beds are", f"description: At {hour} beds are").replace("six", hour)
        (one.team / file).write_text(changed.replace("modified: ", f"since: {hour}\nmodified: "))
        git(one.team, "commit", "-qam", hour)
    git(ada.team, "push", "-q", "origin", "HEAD:main")
    git(ben.team, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main")
    assert any("cannot be read" in one.problem for one in ben.memory.lint())
    if is_sent:
        git(ben.team, "push", "-q", "origin", "HEAD:main")
    first, second = (ada, ben) if is_sent else (ben, ada)
    done = first.sync.run()
    second.sync.run()
    assert len(done.both) == 1
    assert "seven" in ada.files()[file]
    assert "eight" in ada.files()[done.both[0]]
    assert ada.files() == ben.files()
    assert not [one for one in ada.memory.lint() if "cannot be read" in one.problem]


@pytest.mark.requirement("M12")
def test_a_memory_that_a_rebase_by_plain_git_joined_becomes_both_versions_at_the_next_sync_of_its_author(
    people: tuple[Person, Person],
) -> None:
    ada, ben = people
    file = ada.save("Beds are counted at six", "beds")
    ada.sync.run()
    ben.sync.run()
    for one, hour in ((ada, "seven"), (ben, "eight")):
        one.memory.update(f"team/{file}", f"Beds are counted at {hour}", why=f"the shift starts at {hour}")
        git(one.team, "commit", "-qam", hour)
    git(ada.team, "push", "-q", "origin", "HEAD:main")
    git(ben.team, "pull", "-q", "--rebase", "origin", "main")
    git(ben.team, "push", "-q", "origin", "HEAD:main")
    git(ada.team, "pull", "-q", "origin", "main")
    joined = ada.files()[file]
    ada.sync.run()
    assert (ada.files(), git(ada.team, "status", "--porcelain")) == ({file: joined}, ""), "she has only one of the two"
    new = ada.save("The ward has 3 beds", "ward")
    [kept] = ben.sync.run().both
    done = ada.sync.run()
    assert (done.received, done.sent) == ((file, kept), (new,))
    ben.sync.run()
    assert ada.files() == ben.files()
    assert "at seven" in ada.memory.get(f"team/{file}").body
    assert "at eight" in ada.memory.get(f"team/{kept}").body
    assert ada.is_right()


@pytest.mark.requirement("M12")
def test_two_syncs_at_once_take_turns(people: tuple[Person, Person]) -> None:
    ada, ben = people
    for turn in range(4):
        ben.save(f"The lab of floor {turn} closes at {turn + 15} hours", f"lab {turn}")
        ben.sync.run()
        file = ada.save(f"The ward of floor {turn} has {turn + 3} beds and one nurse", f"ward {turn}")
        with ThreadPoolExecutor(3) as pool:
            done = [pool.submit(TeamSync(ada.team, ada.home).run) for _ in range(3)]
        assert sum(file in one.result().sent for one in done) == 1
    assert ada.is_right()


def test_without_an_agreed_remote_nothing_is_sent(tmp_path: Path, people: tuple[Person, Person]) -> None:
    ada, _ = people
    fresh = TeamSync(ada.team, tmp_path / "other-home")
    with pytest.raises(InputError, match="--remote"):
        fresh.run()


@pytest.mark.requirement("M12")
def test_a_remote_is_recorded_only_after_an_exchange_with_it_and_a_failure_shows_the_reason_of_git(
    people: tuple[Person, Person], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ada, _ = people
    good = ada.sync.agreed_remote
    monkeypatch.setenv("REVERIE_HOME", str(ada.home))
    monkeypatch.setenv("REVERIE_TEAM_MEMORY", str(ada.team))
    ada.save("The ward has 3 beds", "ward")
    assert run(["memory", "sync"]) == 0
    assert run(["memory", "sync", "--remote", "origin"]) == 2
    error = capsys.readouterr().err
    assert "origin cannot be reached: " in error
    assert "'origin' does not appear to be a git repository" in error
    assert "and the repository exists" not in error
    assert run(["memory", "sync", "--remote", "ext::sh"]) == 2
    assert ada.sync.agreed_remote == good
    for words in ([], ["--dry-run"]):
        assert run(["memory", "sync", *words]) == 0
        assert capsys.readouterr().out.startswith(f"{good}: ")
    moved = tmp_path / "moved.git"
    git(tmp_path, "clone", "--quiet", "--bare", good, str(moved))
    assert run(["memory", "sync", "--remote", str(moved)]) == 0
    assert ada.sync.agreed_remote == str(moved)
    git(ada.team, "checkout", "-q", "--detach")
    with pytest.raises(InputError, match="on no branch"):
        ada.sync.run()


def test_a_sync_in_a_merge_by_plain_git_that_waits_for_a_person_changes_nothing_and_says_how_to_end_it(
    people: tuple[Person, Person],
) -> None:
    ada, ben = people
    file = ada.save("The ward has 3 beds", "ward")
    ada.sync.run()
    ben.sync.run()
    ada.memory.forget(f"team/{file}")
    ben.memory.update(f"team/{file}", "The ward has 4 beds", why="a new one")
    ada.sync.run()
    git(ben.team, "commit", "-qam", "changed")
    pulled = subprocess.run(["git", "pull", "-q", "--no-rebase", "origin", "main"], cwd=ben.team, capture_output=True)
    assert pulled.returncode, "removed there and changed here"
    before = git(ben.team, "status", "--porcelain"), git(ben.team, "rev-parse", "HEAD")
    with pytest.raises(InputError, match="in a merge; 'git commit' ends it"):
        ben.sync.run()
    assert (git(ben.team, "status", "--porcelain"), git(ben.team, "rev-parse", "HEAD")) == before
    git(ben.team, "commit", "-qam", "kept")
    assert ben.sync.run().sent == (file,)
    assert ben.is_right()


@pytest.mark.requirement("M12")
def test_in_a_repository_with_other_files_only_the_folder_is_committed_and_their_conflicts_are_left_to_people(
    people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, ben = people
    folders = [TeamSync(one.team / "memories", one.home) for one in people if not (one.team / "memories").mkdir()]
    shared = [Memory(one.home / "own", team=one.team / "memories") for one in people]
    (ada.team / "app.py").write_text("x = 1\n")
    git(ada.team, "add", "app.py")
    git(ada.team, "commit", "-qm", "code")
    shared[0].save("Gloves are in the cupboard", type="reference", name="gloves")
    folders[0].run()
    folders[1].run()
    git(ben.team, "checkout", "-q", "HEAD", "--", ".")
    for one, text in ((ada, "x = 2\n"), (ben, "x = 3\n")):
        (one.team / "app.py").write_text(text)
    shared[0].save("Masks are on the shelf", type="reference", name="masks")
    folders[0].run()
    assert git(ada.team, "status", "--porcelain") == "M app.py", "the code is the user's own matter"
    assert folders[1].run().received == ("reference_masks.md",)
    for one in people:
        git(one.team, "commit", "-qam", "code")
    shared[1].save("Soap is at the door", type="reference", name="soap")
    git(ada.team, "push", "-q", "origin", "HEAD:main")
    with pytest.raises(InputError, match=r"app\.py conflicts"):
        folders[1].run()
    assert (ben.team / "app.py").read_text() == "x = 3\n", "the merge was taken back"
