"""A name leads to one model, or to instructions for getting one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.errors import InputError, ModelUnknown
from reverie.models import open_model
from reverie.models.names import DEFAULT_ANTHROPIC, DEFAULT_OPENAI, full_name, how_to_get_a_model, unlisted_notice


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("anthropic:claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("claude-opus-5", "anthropic:claude-opus-5"),
        ("claude-sonnet-4-5[1m]", "anthropic:claude-sonnet-4-5[1m]"),
        ("anthropic", f"anthropic:{DEFAULT_ANTHROPIC}"),
        ("gpt-5.5", "openai:gpt-5.5"),
        ("o3", "openai:o3"),
        ("o4-mini", "openai:o4-mini"),
        ("openai:qwen3:8b", "openai:qwen3:8b"),
        ("openai:meta/llama-4", "openai:meta/llama-4"),
        ("openai", f"openai:{DEFAULT_OPENAI}"),
        ("local", "local:smollm2"),
        ("local:smollm2", "local:smollm2"),
        ("local:/models/a b.gguf", "local:/models/a b.gguf"),
        ("~/models/x.GGUF", "local:~/models/x.GGUF"),
        ("quick", "anthropic:claude-haiku-4-5"),
        ("cheap", "anthropic:claude-haiku-4-5"),
        ("gpt-5.5-mine", "openai:gpt-5.5-mine"),
        ("  claude-opus-5 ", "anthropic:claude-opus-5"),
    ],
)
def test_a_name_is_spelled_out(name: str, full: str) -> None:
    aliases = {"quick": "cheap", "cheap": "claude-haiku-4-5", "gpt-5.5-mine": "gpt-5.5-mine"}
    assert full_name(name, aliases=aliases, environ={}) == full


@pytest.mark.parametrize(
    ("environ", "full"),
    [
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, f"anthropic:{DEFAULT_ANTHROPIC}"),
        ({"ANTHROPIC_AUTH_TOKEN": "k"}, f"anthropic:{DEFAULT_ANTHROPIC}"),
        ({"OPENAI_API_KEY": "k"}, f"openai:{DEFAULT_OPENAI}"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1"}, "openai:default"),
        ({"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "", "OPENAI_BASE_URL": "http://x/v1"}, "openai:default"),
    ],
)
def test_without_a_name_the_environment_decides(environ: dict[str, str], full: str) -> None:
    assert full_name(None, environ=environ) == full


def test_with_nothing_at_all_each_way_to_a_model_has_its_commands_on_lines_of_their_own() -> None:
    with pytest.raises(ModelUnknown) as caught:
        open_model(None, environ={})
    first, *lines = str(caught.value).splitlines()
    assert first == "No model is set up yet. Choose one:"
    commands = [line.strip() for line in lines if line.startswith("  ")]
    assert [command.split()[0] for command in commands] == ["export", "export", "reverie", "reverie"]
    assert max(map(len, lines)) < 80
    assert "pip install" not in str(caught.value)  # all are installed here


def test_a_missing_package_is_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reverie.models.names.find_spec", lambda name: None)
    lines = how_to_get_a_model().splitlines()
    firsts = [after for line, after in pairwise(lines[1:]) if line.endswith(":")]
    extras = ("anthropic", "openai", "local")
    assert all(f"'reverie[{extra}]'" in line for extra, line in zip(extras, firsts, strict=True))


@pytest.mark.parametrize("name", ["nobody", "mistral:large", "claude", "o", ":", "gemini-3"])
def test_a_name_of_nobody_says_what_would_be_one(name: str) -> None:
    with pytest.raises(ModelUnknown) as caught:
        open_model(name, environ={"ANTHROPIC_API_KEY": "k"})
    assert how_to_get_a_model() in str(caught.value)


def test_aliases_that_go_round_are_shown() -> None:
    with pytest.raises(ModelUnknown, match="a -> b -> c -> a"):
        full_name("a", aliases={"a": "b", "b": "c", "c": "a"}, environ={})


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["a", "b", "c", "d", "e", "f", "gpt-x"])))
def test_aliases_always_come_to_an_end(aliases: dict[str, str]) -> None:
    with contextlib.suppress(ModelUnknown):
        assert full_name("a", aliases=aliases, environ={}) == "openai:gpt-x"


@pytest.mark.parametrize(
    ("name", "extra"), [("claude-opus-5", "anthropic"), ("gpt-5.5", "openai"), ("local:smollm2", "local")]
)
def test_a_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, name: str, extra: str) -> None:
    for package in ("anthropic", "openai", "xllamacpp"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelUnknown, match=rf"pip install 'reverie\[{extra}\]'"):
        open_model(name, environ={})


def test_a_model_opens_with_its_name_and_id() -> None:
    environ: dict[str, Any] = {"ANTHROPIC_API_KEY": "k"}
    model = open_model("claude-sonnet-4-5", environ=environ)
    assert (model.name, model.model_id) == ("anthropic:claude-sonnet-4-5", "claude-sonnet-4-5")
    other = open_model("openai:qwen", environ={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert (other.name, other.model_id) == ("openai:qwen", "qwen")


def test_a_file_that_is_no_model_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(ModelUnknown, match="there is no file"):
        open_model("local:/nowhere/at/all.gguf", environ={})
    (tmp_path / "x.gguf").write_text("hello")
    with pytest.raises(ModelUnknown, match="does not begin with GGUF"):
        open_model(f"local:{tmp_path}/x.gguf", environ={})


def test_opening_a_model_loads_no_providers_library() -> None:
    code = (
        "import sys; from reverie.models import open_model\n"
        "for name in ('claude-opus-5', 'gpt-5.5'): open_model(name, environ={})\n"
        "heavy = ('anthropic', 'openai', 'xllamacpp', 'httpx2', 'genai_prices')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_that_no_list_has_is_named_with_its_nearest_and_the_effects() -> None:
    said = unlisted_notice("anthropic:claude-sonet-5", environ={})
    assert "claude-sonet-5 is in no list of models. Did you mean claude-sonnet-5?" in said
    assert "counts as 200,000 tokens" in said
    assert "budgets in dollars do not hold" in said
    for known in ("anthropic:claude-sonnet-5", "openai:o3", "openai-chat:gpt-5.5", "local:/x.gguf"):
        assert unlisted_notice(known, environ={}) == ""
    assert unlisted_notice("openai-chat:qwen3", environ={"OPENAI_BASE_URL": "http://127.0.0.1:8000"}) == ""
    assert unlisted_notice("anthropic:claude-sonet-5", {"claude-sonet-5": {"window_tokens": 9_000}}, environ={}) == ""


@pytest.mark.parametrize("vendor", ["anthropic", "openai"])
def test_an_address_without_a_scheme_is_refused_before_any_request(vendor: str) -> None:
    environ = {f"{vendor.upper()}_BASE_URL": "localhost:11434/v1", f"{vendor.upper()}_API_KEY": "key"}
    with pytest.raises(InputError, match=f"{vendor.upper()}_BASE_URL is 'localhost:11434/v1': .* begins with http://"):
        open_model(f"{vendor}:some-model", environ=environ)
