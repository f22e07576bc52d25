"""The package `reverie` exports few names, and importing it loads nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import reverie

EXPORTED = [
    "Agent",
    "Entry",
    "FileStorage",
    "InMemoryStorage",
    "InputError",
    "Library",
    "Mailbox",
    "Memory",
    "ReverieError",
    "Session",
    "SessionBusy",
    "SessionError",
    "SessionNotFound",
    "Settings",
    "StorageError",
    "SyncSession",
    "View",
    "build_request",
    "load_settings",
    "read_session",
    "tool",
]

HEAVY = {
    "anthropic",
    "anyio",
    "asyncio",
    "click",
    "genai_prices",
    "httpx2",
    "mcp",
    "msgspec",
    "openai",
    "openfeature",
    "opentelemetry",
    "platformdirs",
    "psycopg",
    "pydantic",
    "rich",
    "starlette",
    "uvicorn",
    "xllamacpp",
    "zstandard",
}


def loaded_by(code: str) -> set[str]:
    """Return the top-level modules in memory after running code in a fresh interpreter."""
    report = f"{code}\nimport json, sys; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_no_vendor_and_nothing_heavy() -> None:
    assert loaded_by("import reverie") & HEAVY == set()


def test_the_help_of_the_command_loads_click_and_nothing_else_heavy() -> None:
    run_help = "from reverie.cli.main import run; run(['--help'])"
    assert loaded_by(run_help) & HEAVY == {"click"}


@pytest.mark.parametrize("vendor", ["rich", "msgspec"])
def test_a_heavy_import_would_be_seen(vendor: str) -> None:
    assert vendor in loaded_by(f"import reverie; import {vendor}") & HEAVY


def test_the_exported_names_are_pinned() -> None:
    assert sorted(getattr(reverie, "__all__", [])) == EXPORTED


@pytest.mark.slow
def test_every_exported_name_can_be_had() -> None:
    assert [name for name in EXPORTED if not hasattr(reverie, name)] == []


def test_the_version_is_that_of_the_installed_package() -> None:
    from importlib.metadata import version

    assert reverie.__version__ == version("reverie")
