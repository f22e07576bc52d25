"""What every test gets: a home of its own, the torture switch, the corpus where there is one, printed seeds."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from browser import Browser, opened_browser
from postgres_server import PostgresServer, use_server

REPOSITORY = Path(__file__).resolve().parent.parent
SLOW_FOLDERS = {"examples", "integrations", "scenarios"}
host_cells: list[Any] = []

settings.register_profile("quick", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("torture", settings.get_profile("quick"), max_examples=2_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", help="run the long forms of the tests: more cases, new seeds")
    parser.addoption(
        "--hosts", action="store_true", help="run only the tests with the real coding agents installed here"
    )
    parser.addoption("--write-screens", action="store_true", help="write the kept screens of the terminal anew")


# Before the plugins, which read their options when they are configured.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    torture = bool(config.getoption("--torture"))
    settings.load_profile("torture" if torture else "quick")
    # Workers of one run share the controller's seed, so that the header names the only one there is.
    if "REVERIE_TEST_SEED" not in os.environ:
        os.environ["REVERIE_TEST_SEED"] = str(random.SystemRandom().randrange(2**32)) if torture else "20261115"
    if torture and config.option.timeout is None:
        config.option.timeout = 3_600
    # Hundreds of tests start a program of ours: it need not compile the package each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # A shell that starts the tests in the background has them, and every program they start, ignore interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hypothesis prints the seed of a failure it finds; a given seed makes the whole run repeatable.
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = os.environ["REVERIE_TEST_SEED"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        is_slow = item.get_closest_marker("slow") or SLOW_FOLDERS & set(item.path.relative_to(REPOSITORY).parts)
        item.add_marker("slow" if is_slow else "fast")
        if "alone_with_jobs" in getattr(item, "fixturenames", ()) and not config.getoption("--torture"):
            item.add_marker(pytest.mark.timeout(300, func_only=True))  # a test may wait longer than that for its turn
    # Long tests first, so that no worker begins one when the others have ended.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    with_hosts = [item for item in items if item.get_closest_marker("hosts")]
    if config.getoption("--hosts"):
        items[:] = with_hosts
        return
    for item in with_hosts:
        item.add_marker(pytest.mark.skip(reason="runs real coding agents: pass --hosts"))


# Collected tests and loaded modules live to the end: left out of every later collection of garbage, they cost nothing.
def pytest_collection_finish(session: pytest.Session) -> None:
    gc.collect()
    gc.freeze()


# A worker process has no results of the others; the controller has all of them.
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    host_cells.extend(
        tuple(value) for name, value in report.user_properties if report.when == "call" and name == "cell"
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if host_cells and not hasattr(session.config, "workerinput") and not session.config.getoption("keyword"):
        import host_table

        host_table.write(host_cells)


def pytest_report_header(config: pytest.Config) -> str:
    how = "torture" if config.getoption("--torture") else "quick"
    return f"reverie: {how} run, seed {os.environ['REVERIE_TEST_SEED']} (REVERIE_TEST_SEED=... repeats it)"


@pytest.fixture(scope="session")
def torture(request: pytest.FixtureRequest) -> bool:
    """Say whether the long form of a test was asked for."""
    return bool(request.config.getoption("--torture"))


@pytest.fixture
def seed() -> int:
    """Return the seed of this run; print it in any test that draws from it."""
    number = int(os.environ["REVERIE_TEST_SEED"])
    print(f"REVERIE_TEST_SEED={number}")
    return number


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return ``$REVERIE_CORPUS``, or ``shared/corpus`` next to the checkout; skip the test if it does not exist."""
    given = os.environ.get("REVERIE_CORPUS")
    folder = Path(given) if given else REPOSITORY.parent / "shared" / "corpus"
    if not folder.is_dir():
        pytest.skip("no corpus here: set REVERIE_CORPUS to a folder of recorded sessions")
    return folder


# Load on the machine changes neither of the two costs below; a wall clock measures the neighbours as well.
@pytest.fixture
def steps_of() -> Callable[[Callable[[], object]], int]:
    """Return a function that counts the Python instructions of a call."""

    def steps_of(act: Callable[[], object]) -> int:
        steps = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal steps
            frame.f_trace_opcodes = True
            steps += event == "opcode"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            act()
        finally:
            sys.settrace(before)
        return steps

    return steps_of


@pytest.fixture
def is_linear() -> Callable[[Callable[[int], object], int], bool]:
    """Return a function that says whether 16 times the size costs far less than 256 times the processor time."""

    def seconds(act: Callable[[int], object], size: int) -> float:
        begun = time.thread_time()
        act(size)
        return time.thread_time() - begun

    def is_linear(act: Callable[[int], object], size: int) -> bool:
        small = min(seconds(act, size) for _ in range(5))
        return any(seconds(act, 16 * size) < 64 * small for _ in range(5))

    return is_linear


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test an empty home, and none of the caller's settings."""
    for name in list(os.environ):
        is_setting = name.startswith("REVERIE_") and name not in {
            "REVERIE_CORPUS",
            "REVERIE_HOSTS",
            "REVERIE_TEST_SEED",
        }
        # COLUMNS folds tables; the test runner sets it in its workers.
        if is_setting or name in {"COLUMNS", "DISABLE_COMPACT", "DISABLE_AUTO_COMPACT", "DISABLE_MICROCOMPACT"}:
            monkeypatch.delenv(name)
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("REVERIE_HOME", str(folder))
    monkeypatch.setenv("REVERIE_WORKER", "off")
    return folder


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Give tests the browser of this worker; its start takes a second."""
    yield from opened_browser(tmp_path_factory.mktemp("chromium"))


@pytest.fixture
def browser(request: pytest.FixtureRequest, chromium: Browser) -> Browser:
    """Give a test a browser with an empty page, of the width that is its parameter."""
    chromium.renew(getattr(request, "param", 1280))
    return chromium


@pytest.fixture(scope="session")
def postgres_server() -> PostgresServer:
    """Give tests the PostgreSQL server of this test run, which all workers share; skip where it cannot start."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    server = use_server(Path(tempfile.gettempdir()) / f"reverie-postgres-{run[:12]}")
    if isinstance(server, str):
        pytest.skip(f"PostgreSQL cannot start here: {server}")
    return server


@pytest.fixture
def alone_with_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep tests with background jobs apart, in all workers of a run: they share the database's queue."""
    with (tmp_path_factory.getbasetemp().parent / "jobs.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def tenant(tmp_path: Path) -> str:
    """Give a test a tenant of its own; the names of temporary folders are short, and workers repeat them."""
    return f"{tmp_path.name}-{os.urandom(4).hex()}"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """Give a test the URL of a role that is bound to its tenant; a test uses a tenant of its own."""
    return postgres_server.app_url
