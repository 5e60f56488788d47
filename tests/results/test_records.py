"""What a row may say, and how old rows are read."""

import json

import pytest
from pydantic import ValidationError

from results import records
from results.records import SchemaError, migrate
from tests.results.rows import failed_row, make_row


def test_a_line_reads_back_as_the_same_row():
    row = make_row(cost=0.01, group="g", subset="Pick", perturbation="shuffle", protocol="stream", drift=True)
    assert records.EpisodeRow.model_validate(json.loads(row.line())) == row
    assert row.line().count("\n") == 1
    assert json.loads(row.line())["schema"] == records.SCHEMA_VERSION


def test_an_unknown_price_is_null():
    assert json.loads(make_row().line())["cost"] is None


@pytest.mark.parametrize("status", ["env_error", "infra_error"])
def test_an_error_cannot_be_a_zero(status):
    with pytest.raises(ValidationError, match="must be null, not zero"):
        make_row(status=status, success=False, score=0.0)
    with pytest.raises(ValidationError, match="must be null, not zero"):
        make_row(status=status, success=None, score=0.0)


@pytest.mark.parametrize("status", ["ok", "limit"])
def test_a_verdict_needs_success_and_score(status):
    with pytest.raises(ValidationError, match="both needed"):
        make_row(status=status, success=None)
    with pytest.raises(ValidationError, match="both needed"):
        make_row(status=status, success=True, score=None)


@pytest.mark.parametrize("fields", [{"score": float("nan")}, {"score": 1.5}, {"wall_time": float("inf")}, {"scroe": 1}])
def test_values_that_mean_nothing(fields):
    with pytest.raises(ValidationError):
        make_row(**fields)


def test_the_key_is_what_was_measured():
    row = make_row()
    same = make_row(run="elsewhere", attempt=2, wall_time=9, success=False)
    assert row.key == same.key
    changes = [
        {"method": "ppo"},
        {"method_digest": "x"},
        {"env": "alfworld"},
        {"perturbation": "p"},
        {"model": "other"},
        {"task": "goal-1"},
        {"seed": 1},
        {"iteration": 10},
    ]
    assert all(make_row(**change).key != row.key for change in changes)


def test_rows_are_not_changed():
    with pytest.raises(ValidationError):
        failed_row().score = 0.0


def test_older_rows_are_migrated_step_by_step(monkeypatch):
    monkeypatch.setattr(records, "SCHEMA_VERSION", 3)
    monkeypatch.setitem(records.MIGRATIONS, 1, lambda raw: {**raw, "schema": 2, "new": True})
    monkeypatch.setitem(records.MIGRATIONS, 2, lambda raw: {**raw, "schema": 3, "newer": True})
    old = {"schema": 1, "task": "t"}
    assert migrate(old) == {"schema": 3, "task": "t", "new": True, "newer": True}
    assert old == {"schema": 1, "task": "t"}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"schema": 2}, "row schema 2 is newer than this package reads"),
        ({"schema": 0}, "row schema 0 is no longer migrated"),
        ({}, "schema is None, not a number"),
        ([1], "a row is a JSON object, not list"),
    ],
)
def test_other_schemas_are_refused(raw, message):
    with pytest.raises(SchemaError, match=message):
        migrate(raw)
