"""Secrets are found by their shapes, clean texts raise no alarm, and no value ever leaves the scan."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from reverie.errors import InputError
from reverie.memories.rules.secrets import find_secrets, refuse_secrets, without_secrets
from reverie.runtime.memory.memory import Memory

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.requirement("M10")
def test_tokens_of_common_services_are_found(fakes: dict[str, str]) -> None:
    missed = [name for name, fake in fakes.items() if not find_secrets(f"Remember this: {fake} for later.\nMore text.")]
    assert len(fakes) >= 44
    assert len(missed) <= len(fakes) * 6 // 44, missed


@pytest.mark.requirement("M10")
@pytest.mark.parametrize(
    "wrap", ['KEY="{}"', "key: {}", "`{}`", "({})", "export TOKEN={}", "{}\n", "<{}>", '{{"k": "{}"}}']
)
def test_they_are_found_however_they_are_quoted(fakes: dict[str, str], wrap: str) -> None:
    names = ["github", "aws id", "anthropic", "stripe", "slack bot", "google", "npm", "gitlab"]
    assert [name for name in names if not find_secrets(wrap.format(fakes[name]))] == []


def test_invisible_characters_hide_nothing(fakes: dict[str, str]) -> None:
    fake = fakes["github"]
    assert find_secrets(fake[:9] + "\u200b" + fake[9:])


@pytest.mark.requirement("M10")
def test_secrets_can_be_taken_out_of_a_text_that_stays_readable(fakes: dict[str, str]) -> None:
    found = {name: fake for name, fake in fakes.items() if find_secrets(f"Use {fake} here.\nMore text.")}
    for name, fake in found.items():
        cleaned = without_secrets(f"Run it with {fake} now.\nMore text.")
        assert find_secrets(cleaned) == [], name
        assert [run for run in re.findall(r"[A-Za-z0-9+]{16,}", fake) if run in cleaned] == [], name
        assert cleaned.startswith("Run it with "), name
        assert "left out]" in cleaned, name
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "aB3+" * 60 + "\n-----END RSA PRIVATE KEY-----"
    assert without_secrets(f"a\n{key}\nThen go on.") == "a\n[private key left out]\nThen go on."
    clean = "no secret\u200b here"
    assert without_secrets(clean) is clean


def clean_texts(chance: random.Random) -> list[str]:
    """Return texts as memories and their surroundings hold them: prose, code, ids, hashes, placeholders."""

    def hexes(count: int) -> str:
        return "".join(chance.choice("0123456789abcdef") for _ in range(count))

    words = re.findall(r"\w+", (REPOSITORY / "README.md").read_text())
    made: list[str] = []
    for number in range(400):
        prose = " ".join(chance.choice(words) for _ in range(80))
        made.append(
            f"{prose}. The commit {hexes(40)} of image sha256:{hexes(64)}, session "
            f"{hexes(8)}-{hexes(4)}-{hexes(4)}-{hexes(4)}-{hexes(12)}, version 1.{number}.0-rc.{number}."
        )
    made += [
        template.format(chance.choice(words), number)
        for number, template in enumerate(
            [
                "token = get_token(request.headers['Authorization'])  # {} {}",
                "password: str = field(default='')  # {} {}",
                "The API key is read from the environment variable SERVICE_API_KEY, see {} {}",
                "export API_KEY=<your-api-key> for {} {}",
                "Set `secret: ${{{{ secrets.DEPLOY_KEY }}}}` in the workflow {} {}",
                "api_key = os.environ['OPENAI_API_KEY']  # {} {}",
                "The tokens are counted by tokenizer.encode(text) in {} {}",
                "password=changeme-please-now1 in the sample file {} {}",
                "The key is config.settings.secret_key_v2.rotation {} {}",
                "Use key-value pairs and a sk-learn pipeline {} {}",
                "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12" + " {} {}",
                "https://user@example.org:8080/path/{} and http://localhost:9200/{}",
                "AKIAIOSFODNN7EXAMPLE is the id in the manual {} {}",
                "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx stands for a token {} {}",
                "credentials are in the vault under kv/team-a/service-2/{} {}",
                "primary key: 2026-11-15T10:00:00Z, partition key: user_id_{}{}",
                "The password reset flow sends token_expiry_minutes=30 to {} {}",
                "sort_key=lambda item: item.created_at.timestamp() {} {}",
                "secret santa 2026: draw lots on the 5th {} {}",
                "max_tokens: 200000, window_tokens=167000 {} {}",
            ]
            * 15
        )
    ]  # fmt: skip
    for file in sorted((REPOSITORY / "src").rglob("*.py")):
        text = file.read_text()
        made += [text[at : at + 3_000] for at in range(0, len(text), 3_000)]
    return made[:1_000]


@pytest.mark.requirement("M10")
def test_a_thousand_clean_texts_raise_next_to_no_alarm(seed: int) -> None:
    texts = clean_texts(random.Random(seed))
    assert len(texts) == 1_000
    alarms = [(text[:100], find_secrets(text)) for text in texts if find_secrets(text)]
    assert len(alarms) <= 10, alarms[:12]


@pytest.mark.requirement("M10")
@pytest.mark.parametrize(
    "unit", ["key= token: secret_ AKIA ghp_ eyJ sk- ://a:b@", "A1" * 16, "a1" * 16, "M" * 32, "0" * 31 + "-us"]
)
def test_the_cost_of_a_scan_grows_with_the_text(unit: str, is_linear: Callable[..., bool]) -> None:
    """The time itself is in ``benchmarks/memories.py``."""
    assert is_linear(lambda count: find_secrets(unit * count), 500)


@pytest.mark.requirement("M10")
def test_the_value_is_in_no_error_and_nowhere_on_disk(fakes: dict[str, str], tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory", team=tmp_path / "team")
    for fake in fakes.values():
        core = max(re.findall(r"[A-Za-z0-9_+/~.-]{8,}", fake), key=len)
        text = f"The service is reached with {fake}"
        if not find_secrets(text):
            continue
        for scope in ("private", "team"):
            with pytest.raises(InputError) as refused:
                memory.save(text, type="reference", scope=scope)
            assert core not in str(refused.value)
            assert core not in repr(refused.value.__dict__)
        for hidden in ({"name": fake}, {"description": fake}, {"why": fake}):
            with pytest.raises(InputError) as refused:
                memory.save("The service is reached by its own name", type="reference", **hidden)
            assert core not in str(refused.value)
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert all(max(re.findall(r"[A-Za-z0-9_+/~.-]{8,}", fake), key=len).encode() not in kept for fake in fakes.values())
    with pytest.raises(InputError, match=r"line 2 .*GitHub"):
        refuse_secrets(f"one\n{fakes['github']}", "it")


def test_each_finding_names_its_own_line_and_column() -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    found = find_secrets(f"first\nsee {token} twice\n\n  {token}\n")
    assert [(one.line, one.column) for one in found] == [(2, 5), (4, 3)]
