"""The package that is built from this tree is complete, passes the index's checks, and runs alone."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
RELATIVE = re.compile(r"\]\((?!https://|#)")

pytestmark = pytest.mark.slow
pytest.importorskip("hatchling", reason="the extra dev is not installed whole: it now has hatchling and twine")
pytest.importorskip("twine")


def built(tree: Path, folder: Path, *targets: str) -> list[Path]:
    """Build these targets of a tree, without a network."""
    wanted = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", *wanted, "-d", str(folder)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the source distribution and the wheel."""
    wheel, sdist = built(REPOSITORY, tmp_path_factory.mktemp("dist"), "sdist", "wheel")
    return sdist, wheel


def content_of(wheel: Path) -> dict[str, str]:
    """Return the digest of each file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def description_of(wheel: Path) -> tuple[dict[str, list[str]], str]:
    """Return the header fields and the long description of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        message = message_from_bytes(archive.read(name))
    return {key: message.get_all(key, []) for key in message}, bytes(message.get_payload(decode=True)).decode()


def missing_from(names: set[str]) -> set[str]:
    """Return the files of the repository that are not among the names."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout
    return {name for name in listed.decode().split("\0") if name and (REPOSITORY / name).exists()} - names


def test_the_checks_of_the_index_pass(package: tuple[Path, Path]) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout + done.stderr


def test_the_source_distribution_has_every_file_and_builds_the_same_wheel(
    package: tuple[Path, Path], tmp_path: Path
) -> None:
    sdist, wheel = package
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    if (REPOSITORY / ".git").exists():  # in an unpacked source distribution there is nothing to compare with
        names = {str(path.relative_to(tree)) for path in tree.rglob("*")}
        assert missing_from(names) == set()
        assert missing_from(names - {"hatch_build.py"}) == {"hatch_build.py"}
    (again,) = built(tree, tmp_path / "again", "wheel")
    assert content_of(again) == content_of(wheel)


def test_the_description_names_the_authors_and_has_no_link_that_leads_nowhere(package: tuple[Path, Path]) -> None:
    fields, text = description_of(package[1])
    assert fields["Author"] == ["The Reverie authors"]
    assert "Project-URL" not in fields, "there is no public repository; see docs/reference/name.md when there is one"
    assert RELATIVE.search((REPOSITORY / "README.md").read_text()), "in the repository they lead to files"
    assert RELATIVE.search(text) is None
    assert "Tutorial, all documentation, design" in text


def test_with_the_address_of_a_repository_every_link_leads_to_a_file_there(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("README.md", "LICENSE", "hatch_build.py", "src"):
        (tree / name).symlink_to(REPOSITORY / name)
    settings = (REPOSITORY / "pyproject.toml").read_text()
    address = "https://host.invalid/reverie"
    (tree / "pyproject.toml").write_text(
        settings.replace("[dependency-groups]", f'[project.urls]\nRepository = "{address}"\n\n[dependency-groups]', 1)
    )
    (wheel,) = built(tree, tmp_path / "dist", "wheel")
    fields, text = description_of(wheel)
    assert fields["Project-URL"] == [f"Repository, {address}"]
    assert RELATIVE.search(text) is None
    targets = re.findall(re.escape(address) + r"/(?:blob|raw)/main/([^)#\s]+)", text)
    assert len(targets) == len(re.findall(r"\]\((?!https?://|#)", (REPOSITORY / "README.md").read_text()))
    assert [target for target in targets if not (REPOSITORY / target).exists()] == []


def declared(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Return the distributions that a package needs without extras, and those that they need."""
    for text in distribution(name).requires or ():
        needed = Requirement(text)
        if needed.name not in found and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            found[needed.name] = distribution(needed.name)
            declared(needed.name, found)
    return found


def environment_with(wheel: Path, folder: Path) -> Path:
    """Make an environment of the wheel and the packages that it declares, which are linked from this one."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = (folder / "lib").glob("*/site-packages")
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    command += ["--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run(command, check=True, timeout=120, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    for needed in declared("reverie", {}).values():
        for top in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(needed.locate_file(top))))
    return folder


def test_the_wheel_runs_the_demo_where_only_it_and_its_requirements_are_installed(
    package: tuple[Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip("pip", reason="an environment that uv made has no pip")
    environment = environment_with(package[1], tmp_path / "environment")
    home = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [environment / "bin" / command[0], *command[1:]],
            cwd=tmp_path,
            env=home,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert "less" in run("reverie", "demo", "--fast")
    assert run("python", "-m", "reverie", "--version") == f"reverie {PROJECT['project']['version']}\n"
    where = run("python", "-c", "import importlib.util as u, reverie; print(reverie.__file__, u.find_spec('pytest'))")
    assert where.startswith(str(environment))
    assert where.endswith(" None\n"), "nothing of the environment of the tests is there"


def test_the_lock_file_names_the_public_index_only_and_every_direct_dependency() -> None:
    text = (REPOSITORY / "uv.lock").read_text()
    assert set(re.findall(r"https?://([^/\"]+)", text)) == {"pypi.org", "files.pythonhosted.org"}
    locked = {package["name"] for package in tomllib.loads(text)["package"]}
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *(each for rows in project["optional-dependencies"].values() for each in rows)]
    wanted += [each for rows in PROJECT["dependency-groups"].values() for each in rows]
    names = {re.sub(r"[-_.]+", "-", Requirement(each).name).lower() for each in wanted}
    assert names - locked == set()


def test_no_extra_is_for_the_makers_of_the_package_but_dev() -> None:
    makers = {"dev", *PROJECT["dependency-groups"]}
    assert makers & set(PROJECT["project"]["optional-dependencies"]) == {"dev"}
