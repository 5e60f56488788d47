"""A check that cannot fail is a defect: each one passes on a sound toy and finds the fault of a faulty one."""

import pytest

from harness.conformance import check_env, check_method, check_model
from harness.conformance.env import CHECKS as ENV_CHECKS
from harness.conformance.method import CHECKS as METHOD_CHECKS
from harness.conformance.model import CHECKS as MODEL_CHECKS
from harness.errors import InputError
from harness.model import Prompt
from tests.conformance import faulty_envs, faulty_methods, faulty_models
from tests.toys import ToyEnv, ToyLearner, ToyMemory, ToyModel, ToyWalker

PROMPTS = [Prompt.user(f"You are at cell {n}. The goal is cell 5.{' step' * n}") for n in range(4)]
"""Of different lengths; the right answer is always "right"."""


def _failed(findings):
    return [finding.check for finding in findings if finding.outcome == "fail"]


def test_every_check_has_a_fault_to_find():
    for checks, faults in (
        (ENV_CHECKS, faulty_envs.FAULTS),
        (METHOD_CHECKS, faulty_methods.FAULTS),
        (MODEL_CHECKS, faulty_models.FAULTS),
    ):
        assert set(checks) == {check for check, _ in faults}


def test_a_sound_environment_passes_every_check():
    assert {finding.outcome for finding in check_env(ToyEnv)} == {"pass"}


@pytest.mark.parametrize(("check", "env_class"), faulty_envs.FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_faulty_environment_is_found(check, env_class):
    assert _failed(check_env(env_class, only=[check])) == [check]


UNLEARNED = {"a whole iteration", "learning leaves test tasks alone"}
NO_STREAM = {"a stream ends where it began"}


@pytest.mark.parametrize(
    ("method_class", "skips"), [(ToyWalker, UNLEARNED | NO_STREAM), (ToyLearner, NO_STREAM), (ToyMemory, UNLEARNED)]
)
def test_a_sound_method_passes_every_check(method_class, skips):
    findings = check_method(method_class, ToyEnv, ToyModel)
    assert _failed(findings) == []
    assert {finding.check for finding in findings if finding.outcome == "skip"} == skips


@pytest.mark.parametrize(
    ("check", "method_class"), faulty_methods.FAULTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_faulty_method_is_found(check, method_class):
    assert _failed(check_method(method_class, ToyEnv, ToyModel, only=[check])) == [check]


def test_a_sound_model_passes_every_check():
    assert _failed(check_model(ToyModel, PROMPTS)) == []
    assert [f.outcome for f in check_model(faulty_models.Bandit, PROMPTS, only=["scored again as sampled"])] == ["pass"]


@pytest.mark.parametrize(
    ("check", "model_class"), faulty_models.FAULTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_faulty_model_is_found(check, model_class):
    assert _failed(check_model(model_class, PROMPTS, only=[check])) == [check]


def test_tasks_that_a_method_invents_are_explored_and_none_at_all_is_found(monkeypatch):
    invented = ToyEnv().tasks("train")[:2]

    async def propose(self, arena, iteration):
        assert (await arena.ask(PROMPTS[0], role="policy")).completion.text, "it may ask a model"
        return invented

    async def nothing(self, arena, iteration):
        return []

    for proposes, outcome in ((propose, "pass"), (nothing, "fail")):
        monkeypatch.setattr(ToyLearner, "propose", proposes)
        assert [f.outcome for f in check_method(ToyLearner, ToyEnv, ToyModel, only=["a whole iteration"])] == [outcome]


def test_a_check_that_there_is_not_is_an_error():
    with pytest.raises(InputError, match="did you mean"):
        check_env(ToyEnv, only=["horizons"])


def test_what_a_plug_in_raises_is_a_finding_with_the_reason():
    class Broken(ToyEnv):
        def close(self):
            raise OSError("the browser is gone")

    (finding,) = check_env(Broken, only=["close, twice"])
    assert finding.outcome == "fail"
    assert "OSError: the browser is gone" in finding.reason
    assert str(finding) == "fail  close, twice: raised OSError: the browser is gone"
