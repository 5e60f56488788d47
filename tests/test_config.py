"""Configuration: who overrides whom, what is refused with which help, and what a digest covers."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from harness import registry
from harness.config import NOT_IDENTITY, Dtype, RunConfig, digest, method_digest, parse_seeds, resolve
from harness.errors import InputError
from harness.models.loading import DTYPES

pytestmark = pytest.mark.usefixtures("toys")


def toy(**given: Any) -> RunConfig:
    return resolve(**{"method": "toy-learner", "env": "toy", "models": {"policy": "toy"}, **given})


def write(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# -- order ------------------------------------------------------------------------------------------------------


def test_each_layer_overrides_the_one_before(tmp_path):
    """scale preset < further presets < configuration file < flags < -o key=value."""
    preset = write(tmp_path, "run: {lane: 3}\nmethod: {iterations: 5, rollouts: 5}", "preset.yaml")
    file = write(tmp_path, "run: {lane: 4}\nmethod: {iterations: 6}")
    base = toy()
    shipped = yaml.safe_load((files("harness") / "presets" / "mini.yaml").read_text())
    assert (base.lane, base.view) == (shipped["run"]["lane"], shipped["run"]["view"])
    assert base.options["iterations"] == shipped["method"]["iterations"]
    with_preset = toy(presets=[str(preset)])
    assert (with_preset.lane, with_preset.options["iterations"], with_preset.options["rollouts"]) == (3, 5, 5)
    with_file = toy(presets=[str(preset)], config_file=file)
    assert (with_file.lane, with_file.options["iterations"], with_file.options["rollouts"]) == (4, 6, 5)
    with_flag = toy(presets=[str(preset)], config_file=file, lane=7)
    assert with_flag.lane == 7
    last = toy(presets=[str(preset)], config_file=file, lane=7, overrides=["lane=8", "iterations=9"])
    assert (last.lane, last.options["iterations"]) == (8, 9)


def test_sections_go_from_general_to_special(tmp_path):
    """method (any method that has the option) < envs.<env>.method < methods.<method> < envs.<env>.methods.<method>."""
    layers = [
        "method: {iterations: 1, rollouts: 1, history: 1, max_tokens: 1}",
        "envs: {toy: {method: {rollouts: 2, history: 2, max_tokens: 2}, methods: {toy-learner: {max_tokens: 4}}}}",
        "methods: {toy-learner: {history: 3, max_tokens: 3}, toy-walker: {max_tokens: 99}}",
    ]
    options = toy(config_file=write(tmp_path, "\n".join(layers))).options
    assert [options[name] for name in ("iterations", "rollouts", "history", "max_tokens")] == [1, 2, 3, 4]


def test_run_options_of_an_environment_stand_above_the_general_ones(tmp_path):
    text = "run: {lane: 1, limit: 1}\nenvs: {toy: {run: {lane: 2}}, webshop: {run: {limit: 9}}}"
    config = toy(config_file=write(tmp_path, text))
    assert (config.lane, config.limit) == (2, 1)


def test_models_are_merged_by_role(tmp_path):
    file = write(tmp_path, "run: {models: {judge: 'toy:0.1', policy: 'toy:0.2'}}")
    assert toy(config_file=file, models={"policy": "toy:0.9"}).models == {"policy": "toy:0.9", "judge": "toy:0.1"}


def test_shared_options_of_shipped_presets_may_be_unknown_to_a_method():
    """The mini preset sets lr, which a method without training does not have."""
    assert "lr" not in toy(method="toy-walker").options


def test_empty_sections_are_fine(tmp_path):
    assert toy(config_file=write(tmp_path, "run:\nmethod:\nenvs: {toy: }\n")) == toy()
    assert toy(config_file=write(tmp_path, "")) == toy()


def test_the_paper_scale_is_the_papers():
    """StraTA, Table 7."""
    c = resolve(method="strata", env="webshop", scale="paper").options
    table = {
        "strategies": 4, "rollouts": 8, "oversampling": 8, "top_fraction": 0.5, "length_threshold": 0.5,
        "judgment_weight": 0.1, "max_tokens": 1024, "max_prompt": 7168, "train_temperature": 1.0, "temperature": 0.7,
        "top_p": 0.8, "top_k": 20, "clip_low": 0.2, "clip_high": 0.28, "lr": 1e-6, "weight_decay": 0.01,
        "mini_batch": 1024,
        "iterations": 150, "tasks_per_iteration": 16, "malformed": "exclude", "auxiliary": "all",
    }  # fmt: skip
    assert {name: c[name] for name in table} == table
    grpo = resolve(method="grpo", env="webshop", scale="paper").options
    assert grpo["rollouts"] == c["strategies"] * c["rollouts"], "equal budgets"
    mini, other = (resolve(method=name, env="webshop").options for name in ("strata", "grpo"))
    assert other["rollouts"] == mini["strategies"] * mini["rollouts"]


@pytest.mark.parametrize("strict", [False, True], ids=["preset", "config file"])
def test_a_preset_may_name_the_methods_that_learn_under_it(tmp_path, strict):
    """Others would mix its conventions with theirs; those that do not learn take how it samples."""

    def given(only: str) -> dict[str, Any]:
        file = write(tmp_path, f"only: {only}\nmethod: {{temperature: 0.1}}")
        return {"config_file": file} if strict else {"presets": [str(file)]}

    for only in ("[grpo, toy-learner]", ""):
        assert toy(**given(only)).options["temperature"] == 0.1
    assert toy(method="toy-walker", **given("[grpo]")).options["temperature"] == 0.1
    with pytest.raises(InputError, match=r'is for grpo, rloo, and .* "toy-learner" is none of them: leave the preset'):
        toy(**given("[grpo, rloo]"))


# -- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "toy-lerner"}, 'unknown method "toy-lerner"; did you mean "toy-learner"?'),
        ({"env": "tyo"}, 'unknown environment "tyo"; did you mean "toy"?'),
        ({"presets": ["papr"]}, 'unknown preset "papr"; did you mean "paper"? (or the path of a YAML file)'),
        ({"overrides": ["iteration=3"]}, 'unknown option "iteration"; did you mean "iterations"?'),
        ({"overrides": ["method.lane=3"]}, 'unknown option "method.lane"'),
        ({"overrides": ["models=3"]}, 'unknown option "models"'),
        ({"overrides": ["iterations"]}, '-o takes key=value, got "iterations"'),
        ({"overrides": ["=3"]}, '-o takes key=value, got "=3"'),
        ({"overrides": ["prompts=[a"]}, '-o prompts has a value that is not valid YAML: "[a"'),
        ({"overrides": ["iterations=-1"]}, "option iterations=-1: Input should be greater than or equal to 0"),
        ({"overrides": ["lane=0"]}, "option lane=0"),
        ({"overrides": ["iterations=many"]}, "option iterations='many'"),
        ({"overrides": ["split=tset"]}, "option split='tset'"),
        (
            {"overrides": ["dtype=foo"]},
            "option dtype='foo': Input should be 'auto', 'float32', 'bfloat16' or 'float16'",
        ),
        ({"overrides": ["max_prompt=0"]}, "option max_prompt=0"),
        ({"view": "screenshot"}, 'environment "toy" has no view "screenshot"; it offers full, compact'),
        (
            {"method": "grpo", "overrides": ["aggregation=mean"]},
            "option aggregation='mean': Input should be 'token-mean'",
        ),
        ({"method": "grpo", "overrides": ["aggregation=constant"]}, "aggregation=constant and constant=None"),
        ({"method": "grpo", "overrides": ["constant=40"]}, "aggregation=trajectory-mean and constant=40.0"),
    ],
)
def test_wrong_input_is_named_with_a_way_out(given, message):
    with pytest.raises(InputError) as error:
        toy(**given)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: {lanes: 3}", 'unknown run option "lanes"; did you mean "lane"?'),
        ("method: {iteration: 3}", 'unknown option of method "toy-learner": "iteration"; did you mean "iterations"?'),
        ("methods: {toy-learner: {rollout: 3}}", 'did you mean "rollouts"?'),
        ("methods: {toy-lerner: {rollouts: 3}}", 'did you mean "toy-learner"?'),
        ("envs: {tyo: {}}", 'did you mean "toy"?'),
        ("envs: {toy: {methd: {}}}", 'did you mean "method"?'),
        ("ruN: {}", 'did you mean "run"?'),
        ("run: 3", "run must hold a mapping of names to values; got 3"),
        ("run: {models: mini}", "models must hold a mapping of roles to models"),
        ("run: {method: vanilla}", 'unknown run option "method"'),
        ("run: {scale: paper}", 'unknown run option "scale"'),
        ("only: toy-learner", "only must hold a list of methods ([grpo, rloo]); got 'toy-learner'"),
        ("only: []", "only must hold a list of methods"),
        ("only: [toy-lerner]", 'did you mean "toy-learner"?'),
        ("- a", "must hold a mapping with run, method, methods, envs"),
        ("run: {", "is not valid YAML"),
    ],
)
def test_wrong_files_are_named_with_a_way_out(tmp_path, text, message):
    file = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        toy(config_file=file)
    assert message in str(error.value)


def test_without_a_policy_nothing_can_be_asked(monkeypatch):
    monkeypatch.setattr("harness.config._read_preset", lambda name: {})
    with pytest.raises(InputError, match='no model for the role "policy"; give one with --model'):
        resolve(method="toy-walker", env="toy")


def test_empty_values_and_prefixed_names():
    config = toy(overrides=["method.iterations=2", "limit=3", "eval_at=[0, 1]", "tasks=[a, b]"])
    assert (config.options["iterations"], config.limit) == (2, 3)
    assert (config.eval_at, config.tasks) == ((0, 1), ("a", "b"))
    assert toy(overrides=["limit=3", "limit="]).limit is None
    assert toy(overrides=["temperature=1e-1"]).options["temperature"] == 0.1


# -- digests ----------------------------------------------------------------------------------------------------

CHANGES: dict[str, Any] = {
    "method": "toy-walker",
    "env": "webshop",
    "scale": "paper",
    "models": {"policy": "toy:0.9"},
    "embedder": "minilm",
    "view": "full",
    "perturb": ("noise",),
    "env_data": "/elsewhere",
    "split": "train",
    "limit": 3,
    "tasks": ("a",),
    "lane": 3,
    "eval_at": (1,),
    "device": "cuda",
    "dtype": "bfloat16",
    "options": {"iterations": 1},
    "checkpoint_every": 1,
    "transcripts": False,
}


def identity(config: RunConfig, **other: Any) -> str:
    return digest(
        config,
        **{"env_version": 1, "data_digest": "d", "task_list": "t", "model_identities": config.models, **other},
    )


@pytest.mark.parametrize("field", RunConfig.model_fields)
def test_the_digest_covers_what_changes_rows_and_nothing_else(field):
    """A new field has to be put into CHANGES, and thereby on one side or the other."""
    config = toy()
    changed = config.model_copy(update={field: CHANGES[field]})
    assert getattr(config, field) != getattr(changed, field)
    assert (identity(config) == identity(changed)) is (field in NOT_IDENTITY)
    said = "[identity]" in str(RunConfig.model_fields[field].description)
    assert said is (field not in NOT_IDENTITY), "the description says it"


@pytest.mark.parametrize(
    "other",
    [{"env_version": 2}, {"data_digest": "e"}, {"task_list": "u"}, {"model_identities": {"policy": "mini@1"}}],
)
def test_the_digest_covers_data_tasks_and_weights(other):
    assert identity(toy()) != identity(toy(), **other)


def test_a_model_is_known_by_its_identity_not_by_its_path():
    moved = toy(models={"policy": "toy:0.50"})
    same = {"policy": "mini@abc"}
    assert identity(toy(), model_identities=same) == identity(moved, model_identities=same)


def test_every_option_of_the_method_is_part_of_the_digest():
    config = toy()
    for name, value in config.options.items():
        changed = config.model_copy(update={"options": {**config.options, name: f"not {value}"}})
        assert identity(config) != identity(changed), name
        assert method_digest(config) != method_digest(changed), name


def test_the_digest_covers_what_stands_in_the_users_prompts(tmp_path):
    (tmp_path / "compact").mkdir()
    template = tmp_path / "compact" / "action.txt"
    config = toy(overrides=[f"prompts={tmp_path}"])
    digests: dict[str, tuple[str, str]] = {}
    for text in ("one", "second", "one"):
        template.write_text(text)
        found = (identity(config), method_digest(config))
        assert digests.setdefault(text, found) == found
    for one, other in zip(digests["one"], digests["second"], strict=True):
        assert one != other


def test_precisions_are_those_of_the_models():
    assert set(get_args(Dtype)) == set(DTYPES)


def test_digests_are_short_and_the_same_everywhere():
    assert len(identity(toy())) == len(method_digest(toy())) == 12
    assert identity(toy()) == identity(toy())


def test_options_come_back_as_the_methods_own_config():
    config = toy(overrides=["iterations=2"])
    options = config.method_config()
    assert type(options) is registry.load_method("toy-learner").Config
    assert options.model_dump(mode="json") == config.options


# -- seeds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (0, 1, 2)), ("1", (0,)), ("0,1,2", (0, 1, 2)), ("4,2", (4, 2)), (" 1, 2", (1, 2))]
)
def test_seeds_are_a_count_or_a_list(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "--seeds 0 names no seed"),
        ("-2", "names no seed"),
        ("1,-2", "names no seed"),
        ("1,1", "names a seed twice"),
        ("many", 'got "many"'),
        ("", 'got ""'),
        ("1.5", 'got "1.5"'),
        ("7,", "takes a count or a list"),
    ],
)
def test_wrong_seeds_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_seeds(text)
