"""`prepare policy`: what it takes, what it refuses; how a policy is taught is tested beside `harness.prepare`."""

from __future__ import annotations

import pytest

from harness.cli import main


@pytest.mark.parametrize(
    ("command", "way_out"),
    [
        (("webshp",), 'did you mean "webshop"'),
        (("alfworld",), "specification only"),
        (("webshop", "-o", "hiden=3"), 'did you mean "hidden"'),
        (("webshop", "-o", "hidden"), "key=value"),
        (("webshop", "-o", "demonstrations=0"), "demonstrations=0"),
        (("webshop", "--out", "/proc/x"), "--out"),
        (("toy",), "--out"),
        (("toy", "--out", "policy"), "no scripted expert"),
    ],
)
def test_bad_input_is_one_line_with_a_way_out(command, way_out, toys, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["prepare", "policy", *command]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert way_out in told


def test_a_policy_is_made_where_it_was_asked_for(tmp_path, capsys):
    sizes = (
        "demonstrations=4",
        "stages=[{epochs: 1}]",
        "batch_size=16",
        "hidden=16",
        "layers=1",
        "heads=2",
        "kv_heads=1",
        "ff=16",
    )
    command = ["prepare", "policy", "webshop", "--out", str(tmp_path / "policy")]
    assert main([*command, *(part for size in sizes for part in ("-o", size))]) == 0
    told = capsys.readouterr().out
    assert f"--model mini:{tmp_path / 'policy'}" in told
    assert (tmp_path / "policy" / "manifest.json").is_file()
