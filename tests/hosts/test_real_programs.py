"""Coding agents as their makers ship them, each in a namespace with loopback only: ``pytest --hosts``.

Every statement is about the requests that the real program sent to a scripted model, or about its files afterwards.
The table in docs/guides/other-agents.md is written from these runs.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from host_programs import PROGRAMS, HostProgram, HostWorld, make_world
from host_table import CANNOT, FEATURES, PLUGIN
from loopback_namespace import LoopbackNamespace
from reverie.conversation.tokens.estimate import estimate_request
from reverie.importers import read_session

pytestmark = [pytest.mark.hosts, pytest.mark.slow, pytest.mark.timeout(1_200)]

MEMORY = "Integration tests use the real Postgres database, never mocks"
WHY = "the mock of May hid a broken migration"
PROMPT = "How do we run integration tests against the database?"
INDEX = "](feedback_integration_tests"
"""A part of the memory's line in the index, which the hook or the host itself shows."""
BIG = "seq -f 'number-%.0f of the list' 1 20000"
MIDDLE = "number-10123 of the list"
WORD = "xylophonic"
"""A rare word, said in one prompt only."""
ROUNDS, CALLS = 3, 6


def installed(name: str) -> HostProgram:
    """Return a program that is installed here; skip the test where it is not, or where namespaces are not allowed."""
    program = next(one for one in PROGRAMS if one.host == name)
    if program.path() is None:
        pytest.skip(f"no program {program.program} on PATH or in the folder bin of REVERIE_HOSTS")
    if missing := LoopbackNamespace.missing():
        pytest.skip(missing)
    return program


Cells = dict[str, str]
"""The cell of each feature: ``yes``, a figure, or ``no: `` and the reason."""


def cells_of(world: HostWorld) -> Cells:
    """Play one session with every feature in it and return the cells."""
    name = world.program.host
    settings = world.home / world.program.settings
    before = settings.read_bytes() if settings.exists() else None
    more = ["--share-memory"] if name == "claude-code" else []
    done = world.run(["reverie", "install", "--host", name, "--yes", "--statusline", *more])
    if done.code != 0:
        return dict.fromkeys(set(FEATURES) - {PLUGIN}, f"no: reverie install has no host {name}")
    world.reverie("memory", "add", MEMORY, "--type", "feedback", "--why", WHY)
    asked = world.ask(f"{PROMPT}\n{world.program.call('echo first')}")
    first = world.sent()
    assert first, f"the program sent no request: {asked}"
    trials: dict[str, Callable[[], str]] = {
        "index at start": lambda: yes(first[0].count(INDEX) == 1, "the first request does not hold the index once"),
        "recall at prompt": lambda: yes(WHY in first[0], "the first request holds no recalled memory"),
        "recall after compaction": lambda: after_compaction(world),
        "memory shared with the host": lambda: shared_memory(world, first[0]),
        "big output readable back": lambda: big_output(world),
        "session kept and searchable": lambda: kept(world),
        "status line": lambda: status_line(world),
        "turn with hooks, against empty hooks": lambda: hook_time(world, settings),
        "uninstall byte-exact": lambda: uninstalled(world, settings, before),
    }
    return {feature: CANNOT.get((name, feature)) or tried(trial) for feature, trial in trials.items()}


def tried(trial: Callable[[], str]) -> str:
    """Return the cell of a trial; one that breaks is a cell that does not hold."""
    try:
        return trial()
    except (AssertionError, IndexError, OSError) as error:
        return f"no: {' '.join(str(error).split())[:300]}"


def yes(holds: bool, reason: str) -> str:
    """Return the cell of a feature that holds, or does not for this reason."""
    return "yes" if holds else f"no: {reason}"


def after_compaction(world: HostWorld) -> str:
    """Compact the session, ask again, and say whether the memory is in view again."""
    world.sent()
    world.compact(f"Read this list: {' '.join(f'entry{at}' for at in range(400))}", ["Say hello.", PROMPT])
    hello, asked = world.sent()[-2:]
    if WHY in hello:
        return "no: the compaction left the recalled memory in view, so nothing was tested"
    return yes(WHY in asked, "the memory does not come again after the compaction")


def big_output(world: HostWorld) -> str:
    """Run a command with a big output; a file named in the next request must hold its middle."""
    world.ask(f"List the numbers.\n{world.program.call(BIG)}")
    last = world.sent()[-1]
    if MIDDLE in last:
        return "no: the host sent the whole output"
    paths = {Path(found) for found in re.findall(r"(/[\w./-]+)", last)}
    holding = [path for path in paths if path.is_file() and MIDDLE in path.read_text(errors="replace")]
    return yes(bool(holding), "no path in the request leads to the whole output")


def shared_memory(world: HostWorld, first: str) -> str:
    """Say whether the host tells its model to keep memories in our directory."""
    ours = world.reverie("memory", "path").out.strip()
    return yes(first.count(ours) > first.count(f'path=\\"{ours}'), "the host does not use our directory")


def kept(world: HostWorld) -> str:
    """Say a rare word, end the session and search for it."""
    world.ask(f"Please note the {WORD} parameter.")
    world.reverie("worker")
    known = world.run(["reverie", "keep", "--help"]).code == 0
    if known:
        world.reverie("keep")
    found = world.run(["reverie", "search", WORD]).out
    return yes(WORD in found.replace(f'"{WORD}"', ""), "reverie search does not find its words")


def status_line(world: HostWorld) -> str:
    """Start the program in a terminal and look for our line."""
    seen = world.namespace.talk([world.program.program], [("1 memory", "")], cwd=world.project, env=world.env)
    return yes(seen.code == 0, "the line does not appear")


def hook_time(world: HostWorld, settings: Path) -> str:
    """Measure a turn of six calls with our hooks and with hooks that only print ``{}``, alternating."""
    ours, stub = settings.read_text(), world.home / "stub"
    stub.write_text("#!/bin/sh\necho {}\n")
    stub.chmod(0o755)
    program = world.run(["sh", "-c", "command -v reverie"]).out.strip()
    empty = re.sub(r'"command": "[^"]*reverie[^"]* (?:hook|sh) [^"]*"', f'"command": "{stub}"', ours)
    empty = empty.replace(program, str(stub)) if world.program.host == "opencode" else empty
    if empty == ours:
        return "no: the settings name no program of ours"
    seconds: dict[str, list[float]] = {ours: [], empty: []}
    try:
        for number in range(ROUNDS):
            for at, text in enumerate(seconds):
                settings.write_text(text)
                calls = "\n".join(world.program.call(f"echo {number}-{at}-{call}") for call in range(CALLS))
                seconds[text].append(world.ask(f"Echo.\n{calls}").seconds)
    finally:
        settings.write_text(ours)
    world.sent()
    with_ours, with_none = (statistics.median(taken) for taken in seconds.values())
    return f"{with_ours / with_none:.2f} ({with_ours:.1f} s)"


def uninstalled(world: HostWorld, settings: Path, before: bytes | None) -> str:
    """Uninstall and compare the settings file with the one before."""
    world.reverie("uninstall", "--yes")
    now = settings.read_bytes() if settings.exists() else None
    return yes(now == before, f"{settings.name} differs: {now!r}")


@pytest.mark.requirement("H2", "H6")
@pytest.mark.parametrize("name", [one.host for one in PROGRAMS])
def test_a_real_program_has_every_feature_that_it_can_have(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    program = installed(name)
    with LoopbackNamespace() as namespace:
        world = make_world(program, namespace, tmp_path)
        version = world.run([program.program, "--version"]).out.strip().splitlines()[-1]
        cells = cells_of(world)
    for feature, cell in cells.items():
        record_property("cell", [program.title, version, feature, cell])
        print(f"{program.title} {version}: {feature}: {cell}")
    assert not {feature: cell for feature, cell in cells.items() if cell.startswith("no")}


@pytest.mark.requirement("H1")
@pytest.mark.parametrize("has_rule", [True, False])
def test_claude_code_writes_memories_but_not_their_journal(has_rule: bool, tmp_path: Path) -> None:
    program = installed("claude-code")
    with LoopbackNamespace() as namespace:
        world = make_world(program, namespace, tmp_path)
        world.reverie("install", "--host", "claude-code", "--yes", "--share-memory")
        local = world.project / ".claude" / "settings.local.json"
        if not has_rule:  # the known-bad twin
            local.write_text(json.dumps({**json.loads(local.read_text()), "permissions": {}}))
        memory = Path(world.reverie("memory", "path").out.strip())
        files = [memory / ".journal" / "written", memory / ".journal" / "redirected", memory / "fact.md"]
        calls = [
            f"@@ Write {json.dumps({'file_path': str(files[0]), 'content': 'x'})}",
            program.call(f"echo x > {files[1]}"),
            f"@@ Write {json.dumps({'file_path': str(files[2]), 'content': 'x'})}",
        ]
        words = ["claude", "-p", "\n".join(["Write.", *calls]), "--allowedTools", "Bash", "Write"]
        assert world.run(words).code == 0
    assert [path.exists() for path in files] == [not has_rule, not has_rule, True]


@pytest.mark.requirement("H3")
@pytest.mark.parametrize("name", [one.host for one in PROGRAMS])
def test_a_real_program_loads_the_plugin_folder_and_loses_it_again(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    program = installed(name)
    folder = tmp_path / "plugin"
    with LoopbackNamespace() as namespace:
        world = make_world(program, namespace, tmp_path)
        version = world.run([program.program, "--version"]).out.strip().splitlines()[-1]
        world.reverie("memory", "add", MEMORY, "--type", "feedback", "--why", WHY)
        world.ask(PROMPT)
        assert INDEX not in world.sent()[0], "the known-bad twin: nothing is shown without the plugin"
        world.reverie("install", "--plugin", str(folder))
        for command in program.load:
            done = world.run(command.replace("DIR", str(folder)).split())
            assert done.code == 0, f"{command}: {done.out[-500:]} {done.err[-500:]}"
        world.ask(PROMPT)
        first = world.sent()[0]
        world.reverie("uninstall", "--yes")
    cell = yes(INDEX in first and WHY in first, "the first request holds no index or no recalled memory")
    record_property("cell", [program.title, version, PLUGIN, cell])
    print(f"{program.title} {version}: {PLUGIN}: {cell}")
    assert cell == "yes"
    assert not folder.exists()


@pytest.mark.requirement("A4")
def test_a_compacted_session_of_claude_code_is_measured_and_billed_as_it_was_sent(tmp_path: Path) -> None:
    program = installed("claude-code")
    with LoopbackNamespace() as namespace:
        world = make_world(program, namespace, tmp_path)
        for number in range(4):
            listed = program.call(f"seq -f 'row %.0f of list {number}' 1 300")
            world.ask(f"List {number}.\n{listed}", resume=number > 0)
        world.compact("Read the lists.", ["Count.\n" + program.call("echo counted"), "And on."])
        wire = json.loads(world.sent()[-1])["messages"]
        [transcript] = (world.home / ".claude" / "projects").glob("*/*.jsonl")
        told = json.loads(world.reverie("context", str(transcript), "--json").out)
        bill = json.loads(world.reverie("replay", str(transcript), "--json").out)["program_bill"]
        [found] = read_session(transcript)
    assert found.window is not None
    assert told["compactions"] == 1
    assert told["messages"] == len(wire) + 1, "the wire has all but the last reply"
    sent, read = estimate_request(wire), estimate_request(found.window[: len(wire)])
    print(f"messages {told['messages'] - 1} of {len(wire)}, tokens {read} of {sent}, bill {bill}")
    assert abs(read - sent) <= 0.03 * sent
    assert bill["priced_usd"] == pytest.approx(bill["program_usd"], abs=0.005)


@pytest.mark.requirement("H3")
def test_opencode_sends_the_view_of_a_session_only_where_the_switch_is_on(tmp_path: Path) -> None:
    program = installed("opencode")
    sizes: dict[str, list[int]] = {}
    for switch in ("0", "1"):
        with LoopbackNamespace() as namespace:
            world = make_world(program, namespace, tmp_path / switch)
            world.env |= {"OPENCODE_REVERIE_VIEW": switch, "REVERIE_WINDOW_TOKENS": "20000"}
            world.reverie("install", "--yes", "--host", "opencode")
            for number in range(6):
                counted = program.call(f"seq -f 'row %.0f of table {number}' 1 700")
                assert world.ask(f"Count table {number}.\n{counted}", resume=number > 0).code == 0
            sent = world.sent()
            assert "Count table 5." in sent[-1]
            sizes[switch] = [len(one) for one in sent]
    print(sizes)
    assert len(sizes["1"]) == len(sizes["0"])
    assert max(sizes["1"]) < 0.7 * max(sizes["0"])


@pytest.mark.requirement("H3")
def test_opencode_sends_old_results_as_handles_that_can_be_read(tmp_path: Path) -> None:
    program = installed("opencode")
    cleared = re.compile(r"Old tool result content cleared\] handle: (call_\d+)")
    with LoopbackNamespace() as namespace:
        world = make_world(program, namespace, tmp_path)
        world.env |= {"OPENCODE_REVERIE_VIEW": "1", "REVERIE_WINDOW_TOKENS": "60000"}
        world.reverie("install", "--yes", "--host", "opencode")
        for number in range(7):
            counted = program.call(f"seq -f 'row %.0f of table {number}' 1 700")
            assert world.ask(f"Count table {number}.\n{counted}", resume=number > 0).code == 0
        sent = world.sent()
        found = [cleared.findall(one) for one in sent]
        [session] = [path.stem for path in (tmp_path / "reverie" / "projects").rglob("opencode-ses_*.jsonl")]
        whole = world.reverie("read", session, found[-1][0]).out
    assert found[0] == [], "the known-bad twin: a result that is new is sent whole"
    assert "row 700 of table 0" in sent[1]
    assert "row 700 of table 0" not in sent[-1]
    assert "row 700 of table 6" in sent[-1]
    assert "row 700 of table 0" in whole
    assert all(len(now) <= len(later) for now, later in pairwise(found)), "a cleared result stays cleared"


@pytest.mark.requirement("H2")
def test_codex_declares_the_tools_once_the_server_has_started(tmp_path: Path) -> None:
    program = installed("codex")
    with LoopbackNamespace() as namespace:
        world = make_world(program, namespace, tmp_path)
        reverie = world.run(["sh", "-c", "command -v reverie"]).out.strip()
        assert world.run(["codex", "mcp", "add", "reverie", "--", reverie, "mcp"]).code == 0
        calls = [program.call(f"sleep 4; echo {number}") for number in range(10)]
        world.ask("\n".join(["Wait.", *calls]))
        declared = [json.loads(one)["tools"] for one in world.sent()]
    spaces = [tool for tools in declared for tool in tools if tool.get("name") == "mcp__reverie"]
    assert spaces, "no request declares the tools"
    assert {"recall", "search_sessions", "read_back"} <= {tool["name"] for tool in spaces[-1]["tools"]}


@pytest.mark.requirement("H3")
def test_a_real_client_of_agent_plugins_loads_the_portable_package(tmp_path: Path) -> None:
    program = installed("codex")
    folder = tmp_path / "plugin"
    with LoopbackNamespace() as namespace:
        world = make_world(program, namespace, tmp_path)
        world.reverie("install", "--plugin", str(folder))
        listed = folder / ".agents" / "plugins" / "marketplace.json"
        listed.write_text(listed.read_text().replace("./codex", "./agent-plugin"))
        for command in program.load:
            assert world.run(command.replace("DIR", str(folder)).split()).code == 0
        world.ask("Say hello.")
        servers = world.run(["codex", "mcp", "list"]).out
        assert "Look up what was decided" in world.sent()[0], "the skill is not shown"
    assert re.search(r"reverie +\S+/bin/reverie +mcp .*PLUGIN_DATA=\S+ PLUGIN_ROOT=\S+ .*enabled", servers)
