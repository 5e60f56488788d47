"""The manifest: written whole, read back, and held against a later version of the code."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from harness import manifest as manifest_module
from harness.errors import InputError, RunError
from harness.manifest import (
    OPTIONAL_PACKAGES,
    PACKAGES,
    Manifest,
    check_drift,
    code_version,
    package_versions,
    plugin_versions,
    settle,
)
from harness.redact import MASK


def _make(**changed):
    values = {
        "name": "vanilla-toy-abc",
        "digest": "abc",
        "config": {"method": "vanilla", "models": {"policy": "openai:https://me:hunter2@host/v1"}, "api_key": "xyz"},
        "method_digest": "m",
        "env_version": 1,
        "data_digest": "embedded",
        "task_list": "t",
        "model_identities": {"policy": "toy"},
        "argv": ["harness", "run", "--api-key", "s3cr3t"],
    }
    return Manifest.make(**{**values, **changed})


def test_what_is_written_is_read_back(tmp_path):
    made = _make()
    made.write(tmp_path / "manifest.json")
    assert Manifest.read(tmp_path / "manifest.json") == made
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_secrets_do_not_reach_the_file(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_API_KEY", "tralala-42")
    made = _make(model_identities={"policy": "hosted@tralala-42"})
    made.write(tmp_path / "manifest.json")
    text = (tmp_path / "manifest.json").read_text()
    for secret in ("s3cr3t", "hunter2", "xyz", "tralala-42"):
        assert secret not in text
    assert made.argv == ["harness", "run", "--api-key", MASK]


def test_a_disk_that_refuses_is_an_error_of_the_run_and_leaves_nothing(tmp_path):
    with pytest.raises(RunError, match="could not write"):
        _make().write(tmp_path / "missing" / "manifest.json")


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"name": 3'])
def test_a_damaged_manifest_is_named(content, tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text(content)
    with pytest.raises(InputError, match=str(path)):
        Manifest.read(path)


def test_a_missing_manifest_is_named(tmp_path):
    with pytest.raises(InputError, match="no manifest"):
        Manifest.read(tmp_path / "manifest.json")


def test_drift_is_what_can_move_a_row():
    made = _make()
    assert (
        check_drift(made, made.model_copy(update={"cpus": 512, "created": "later", "argv": [], "platform": "Mars"}))
        == []
    )
    other = made.model_copy(
        update={
            "code": "1+x",
            "python": "4.0.1",
            "packages": {**made.packages, "torch": "9", "numpy": made.packages["numpy"]},
        }
    )
    assert check_drift(made, other) == [
        f"code: {made.code} -> 1+x",
        f"python: {'.'.join(made.python.split('.')[:2])} -> 4.0",
        f"torch: {made.packages['torch']} -> 9",
    ]
    bare = made.model_copy(update={"packages": {}})
    assert f"numpy: {made.packages['numpy']} -> not installed" in check_drift(made, bare)


def test_settling_writes_once_and_then_compares(tmp_path):
    path, made = tmp_path / "manifest.json", _make()
    assert settle(path, made, allow_drift=False) is False
    first = path.read_bytes()
    assert settle(path, _make(argv=["another", "command"]), allow_drift=False) is False
    assert path.read_bytes() == first
    changed = made.model_copy(update={"code": "1+x"})
    with pytest.raises(InputError, match=r"code: .* -> 1\+x.*--allow-drift"):
        settle(path, changed, allow_drift=False)
    assert settle(path, changed, allow_drift=True) is True
    assert path.read_bytes() == first


def test_a_folder_of_another_run_is_refused(tmp_path):
    settle(tmp_path / "manifest.json", _make(), allow_drift=False)
    with pytest.raises(InputError, match="belongs to run abc"):
        settle(tmp_path / "manifest.json", _make(digest="xyz"), allow_drift=True)


def test_the_code_version_follows_every_source_file(monkeypatch, tmp_path):
    package = tmp_path / "harness"
    package.mkdir()
    monkeypatch.setattr(manifest_module, "files", lambda name: tmp_path / name)
    monkeypatch.setattr(manifest_module, "_SOURCES", ("harness",))
    seen = set()
    for name, content in (
        ("a.py", "1"),
        ("a.py", "2"),
        ("prompt.txt", "say"),
        ("presets/mini.yaml", "run:"),
        ("policy/vocab.json", "[]"),
        *((name, "w") for name in ("weights.safetensors", "a.pyc", "README.md", "policy/card.md", "a.py~")),
        *((name, "w") for name in ("commands/run.py", "conformance/env.py", "cli.py", "progress.py", "redact.py")),
        ("doctor.py", "w"),
    ):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(content)
        seen.add(code_version.__wrapped__())
    assert len(seen) == 5  # two versions of a.py, and what else can move a row
    assert all(version.startswith("0.") and len(version.partition("+")[2]) == 12 for version in seen)


def test_plug_ins_in_use_are_recorded(toys):
    assert plugin_versions(env="toy", method="vanilla", models=("toy:0.9",)) == {"abstraction-bench-toys": "1.0"}
    assert plugin_versions(env="webshop", method="vanilla", models=("mini",)) == {}


def test_what_is_said_to_move_no_row_exists():
    """A file that was renamed would count again, unnoticed."""
    root = Path(str(files("harness"))).parent
    assert [name for name in manifest_module._NOT_SOURCES if not (root / name).exists()] == []


def test_versions_of_what_can_move_a_row_are_recorded():
    versions = package_versions()
    assert set(PACKAGES) <= set(versions), "these are always installed"
    assert {"thefuzz", "rapidfuzz", "wordllama", "snowballstemmer", "safetensors"} <= set(PACKAGES)
    assert {"spacy", "sentence-transformers"} <= set(OPTIONAL_PACKAGES)
    assert set(versions) <= {*PACKAGES, *OPTIONAL_PACKAGES}
