"""Shell completion, in the shells themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from log_script import Script
from reverie import FileStorage, Library
from reverie.runtime.places.projects import log_key, project_slug

ASKS = {
    "bash": 'eval "$(reverie completion bash)"; COMP_WORDS=({words}); COMP_CWORD={last}; _reverie_completion reverie;'
    ' printf "%s\\n" "${{COMPREPLY[@]}}"',
    "zsh": 'autoload -U compinit; compinit -u; eval "$(reverie completion zsh)";'
    ' _REVERIE_COMPLETE=zsh_complete COMP_WORDS="{words}" COMP_CWORD={last} reverie',
    "fish": 'reverie completion fish | source; complete -C "{words}"',
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with one session."""
    script, storage = Script(), FileStorage(tmp_path)
    script.user("hello")
    Library(storage).store(log_key(project_slug(tmp_path), "winter-trip"), script.entries)
    storage.close()
    return tmp_path


@pytest.mark.requirement("U4")
@pytest.mark.parametrize("shell", ASKS)
@pytest.mark.parametrize(
    ("words", "found"),
    [("reverie sess", "sessions"), ("reverie stats --js", "--json"), ("reverie show win", "winter-trip")],
)
def test_a_shell_completes_commands_options_and_sessions(shell: str, words: str, found: str, home: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = ASKS[shell].format(words=words, last=len(words.split()) - 1)
    folder = str(Path(sys.executable).parent)
    environ = {**os.environ, "REVERIE_HOME": str(home), "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run([shell, "-c", script], capture_output=True, text=True, timeout=60, env=environ, cwd=home)
    assert found in done.stdout.replace("\t", "\n").splitlines(), done


def test_the_shell_in_use_is_the_default(
    reverie: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert "fish_complete" in reverie("completion")[1]
    monkeypatch.setenv("SHELL", "/bin/csh")
    code, _, error = reverie("completion")
    assert code == 2
    assert "reverie completion bash|zsh|fish" in error
