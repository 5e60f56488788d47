"""Templates, what stands in their slots, and the parsing of replies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.vanilla import SLOTS, ActionPrompt, Vanilla
from envs.webshop.env import WebShop
from harness.episode import EpisodeFailed
from harness.errors import InputError
from harness.method import MethodConfig
from harness.model import Kit, ModelContext, Prompt, UnsupportedOption
from harness.models.scripted import ScriptedModel
from harness.prompts import (
    Prompts,
    Scene,
    Template,
    check_words,
    load_template,
    load_templates,
    parse_action,
    parse_numbers,
    parse_tag,
)
from harness.registry import load_method, open_model
from harness.types import Status, Step
from tests.plays import best, episode, play, trajectory, walk, world
from tests.toys import ToyEnv

# -- parsing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("<action>left</action>", "left"),
        ("I think.\n<action>\n  go to desk 1 \n</action> Done.", "go to desk 1"),
        ("<action>first</action> no, <action>second</action>", "second"),
        ("<action>first</action> <action>never closed", "first"),
        ("<action>never closed <action>second</action>", "second"),
        ("<action>out <action>in</action> side</action>", "in"),
        ("</action>left<action>", None),
        ("<action>left", None),
        ("left", None),
        ("", None),
        ("<action></action>", None),
        ("<action>  \n </action>", None),
        ("<action>left</action> <action> </action>", None),  # the last complete tag counts, and it is empty
        ("<Action>left</Action>", None),
        ("<action >left</action>", None),
        ("<action>a<b>c</b></action>", "a<b>c</b>"),
        ("<action>search[red {mug}]</action>", "search[red {mug}]"),
    ],
)
def test_the_last_complete_tag_is_the_action(reply, action):
    assert parse_action(reply) == action


pieces = st.lists(
    st.sampled_from(["<a>", "</a>", "<b>", "</b>", "[", "]", ",", " ", "\n", "0", "7", "12", "-", "x", "٣", "²", "<a"])
    | st.text(max_size=3),
    max_size=30,
).map("".join)


@given(pieces)
def test_any_reply_can_be_parsed(reply):
    found = parse_tag(reply, "a")
    if found is None:
        return
    assert found
    assert found == found.strip()
    assert "<a>" not in found
    assert "</a>" not in found
    assert f"<a>{found}</a>" in re.sub(r"<a>\s+", "<a>", re.sub(r"\s+</a>", "</a>", reply))


@given(st.text(), st.text(alphabet=st.characters(exclude_characters="<>"), min_size=1).filter(str.strip))
def test_what_is_put_between_tags_comes_back(noise, action):
    reply = f"{noise}<action>{action}</action>{noise.replace('<', '')}"
    assert parse_action(reply) == action.strip()


@pytest.mark.parametrize(
    ("reply", "numbers"),
    [
        ("<n>[2, 5]</n>", {2, 5}),
        ("<n> [ 2 5 ] </n>", {2, 5}),
        ("<n>the list is [5,2,5]</n>", {2, 5}),
        ("<n>[]</n>", set()),
        ("<n>[ ]</n>", set()),
        ("<n>[0, 1, 6, 7, 100]</n>", {1, 6}),
        ("<n>[007]</n>", set()),
        ("<n>[003]</n>", {3}),
        ("<n>[1]</n> better <n>[2]</n>", {2}),
        ("<n>[1, two]</n>", {1}),
        ("<n>[-1]</n>", set()),
        ("<n>1, 2</n>", None),
        ("<n></n>", None),
        ("[1]", None),
        ("<n>[1", None),
        (f"<n>[2, {'9' * 6000}]</n>", {2}),  # int() refuses so many digits
        (f"<n>[{'0' * 6000}2]</n>", {2}),
        ("<n>[²]</n>", set()),
        ("<n>[٣]</n>", set()),
    ],
)
def test_numbers_of_a_list(reply, numbers):
    assert parse_numbers(reply, "n", highest=6) == numbers


@given(pieces, st.integers(0, 20))
def test_numbers_lie_in_range_whatever_is_said(reply, highest):
    for text in (reply, f"<a>{reply}</a>", f"<a>[{reply}]</a>"):
        numbers = parse_numbers(text, "a", highest=highest)
        assert numbers is None or all(1 <= n <= highest for n in numbers)


@given(st.sets(st.integers(1, 50)), st.sampled_from([", ", ",", " ", " , ", "\n"]))
def test_a_list_of_steps_comes_back(steps, comma):
    assert parse_numbers(f"so: <a>[{comma.join(map(str, steps))}]</a>", "a", highest=50) == steps


# -- templates --------------------------------------------------------------------------------------------------


def test_slots_are_filled_and_what_is_filled_in_is_data():
    template = Template("Do {task}; see {context}.", source="t", slots=("task", "context"))
    assert template.render(task="{context} {x}", context="{task}") == "Do {context} {x}; see {task}."
    assert template.words == {"Do", ";", "see", "."}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{task} {contxt} {context}", r"my\.txt has unknown slots \['contxt'\].*offers \['context', 'task'\]"),
        ("{task}", r"my\.txt lacks the slots \['context'\]"),
    ],
)
def test_wrong_slots_are_named(text, message):
    with pytest.raises(InputError, match=message):
        Template(text, source="my.txt", slots=("task", "context"))


def test_braces_that_are_no_slots_stay():
    assert Template("{} {a b} {task}", source="t", slots=("task",)).render(task="x") == "{} {a b} x"


def load(folder: Path | None, view: str = "compact") -> Template:
    slots = ("description", "context", "instruction")[: 3 if view == "full" else 2]
    return load_template("baselines", view, "action", slots, str(folder) if folder else None)


def test_a_user_folder_stands_in_front_of_the_shipped_one(tmp_path):
    shipped = load(None)
    (tmp_path / "compact").mkdir()
    (tmp_path / "compact" / "action.txt").write_text("  für {description} tu {context}\n", encoding="utf-8")
    assert load(tmp_path).text == "für {description} tu {context}"
    assert load(tmp_path, "full").text == load(None, "full").text, "what the folder does not hold stays as shipped"
    assert shipped.text == load(None).text


def test_a_user_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere is not a folder; it must hold <view>/<name>\.txt"):
        load(tmp_path / "nowhere")


def test_a_user_template_with_a_wrong_slot_is_named_with_its_path(tmp_path):
    (tmp_path / "compact").mkdir()
    (tmp_path / "compact" / "action.txt").write_text("{description} {contexts}")
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "compact" / "action.txt"))):
        load(tmp_path)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            "compact/actoin.txt",
            'unknown template in prompts=.*: "compact/actoin.txt"; did you mean "compact/action.txt"',
        ),
        ("full/action.md", 'did you mean "full/action.txt"'),
        ("full/strategy.txt", '"full/strategy.txt"; did you mean'),
        ("compct/action.txt", "holds no templates; this method reads full/action.txt, compact/action.txt"),
        ("action.txt", "holds no templates"),
    ],
)
def test_files_that_would_never_be_read_are_refused(tmp_path, file, message):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("{description} {context}")
    with pytest.raises(InputError, match=message):
        load_templates("baselines", "compact", SLOTS, str(tmp_path))


def test_hidden_files_and_the_other_view_are_left_alone(tmp_path):
    for file in ("compact/.action.txt.swp", "full/action.txt"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text("mine")
    templates = load_templates("baselines", "compact", SLOTS, str(tmp_path))
    assert templates["action"].text == load(None).text


# -- scenes -----------------------------------------------------------------------------------------------------


def context(length: int, taken: int, view: str = "compact") -> str:
    """The context after a number of steps; in the compact view, what follows the observation."""
    there = world()
    one = episode(there, goal=5)
    scene = Scene(ToyEnv.spec, view, length)

    async def main() -> str:
        for number in range(taken):
            await one.step(None if number == 1 else "right")
        return scene.context(one).removeprefix(one.observation.text)

    return play(there, main())[0]


@pytest.mark.parametrize("taken", range(6))
@pytest.mark.parametrize("length", [-1, 0, 1, 2, 4, 9])
def test_the_last_steps_stand_in_the_context(length, taken):
    """However many were asked for: more than there are means all of them."""
    did = ["right", "malformed", "right", "right", "right"][:taken]
    shown = did if length < 0 else did[max(0, taken - length) :]
    assert context(length, taken) == (f" did {' '.join(f'{action} ;' for action in shown)}" if shown else "")
    assert context(length, taken, "full").count("action: ") == len(shown)


def test_the_full_context_tells_steps_observation_and_possible_actions():
    text = context(2, 3, "full")
    assert "Steps taken so far: 3. The last 2:" in text
    assert "[2] seen: You are at cell 1." in text
    assert "    action: (a reply without a valid action)\n[3] seen: Your last reply held no valid action;" in text
    assert "You are at cell 1. The goal is cell 5. The walls are blue.\n    action: right\nWhat you see now" in text
    assert "What you see now (step 4 of at most 7):\nYou are at cell 2." in text
    assert text.endswith("Possible now: left, right, stop")


@pytest.mark.parametrize("length", [-1, 0, 1, 2])
def test_what_is_seen_now_stands_in_the_full_context_once(length):
    """Each past step is shown with what its action answered, not with what it led to."""
    text = context(length, 1, "full")
    assert text.count("You are at cell 1.") == 1
    assert text.count("You are at cell 0.") == (length != 0)


def test_reasoning_is_asked_for_where_prompts_have_words():
    plain, thinking = (Scene(ToyEnv.spec, "full", 2, reasoning=on).instruction for on in (False, True))
    assert thinking.startswith(f"{plain}. Before you answer, think step by step")
    with pytest.raises(UnsupportedOption, match=r"reasoning=true .* use --view full"):
        Scene(ToyEnv.spec, "compact", 2, reasoning=True)
    one = ActionPrompt(MethodConfig(reasoning=True), ToyEnv.spec, "full")
    there = world()
    assert "think step by step about what is left to do" in one.act(episode(there)).text
    there.close()


def test_descriptions():
    full = Scene(ToyEnv.spec, "full", 2)
    assert full.description("go") == "A corridor of cells. Walk to the goal and stop there.\n\nYour task: go"
    assert full.instruction == "left, right or stop"
    assert Scene(ToyEnv.spec, "compact", 2).description("go") == "go"


def test_histories_number_all_actions():
    done = trajectory(0, malformed=[False, True, False])
    assert Scene(ToyEnv.spec, "compact", 2).history(done) == (
        "1 corridor left ; 2 corridor malformed ; 3 corridor left ;"
    )
    full = Scene(ToyEnv.spec, "full", 2)
    assert full.history(done).splitlines() == [
        "Step 1: left", "Seen: seen", "Step 2: (a reply without a valid action)", "Seen: seen", "Step 3: left",
        "Seen: seen",
    ]  # fmt: skip
    assert full.history(done, final=False).splitlines()[-1] == "Step 3: left"


def test_observations_never_become_slots():
    """Text from a page is data: braces in it stay braces."""
    there = world()
    one = episode(there)
    scene = Scene(ToyEnv.spec, "compact", 2)
    template = Template("{description} | {context}", source="t", slots=("description", "context"))
    text = template.render(description="{context}", context=scene.context(one))
    assert text.startswith("{context} | You are")
    assert best(text) == "right"
    play(there, walk(one))


# -- within the token limit -------------------------------------------------------------------------------------


def bounded(max_prompt: int, *, view: str = "compact", model: ScriptedModel | None = None) -> Prompts:
    """Prompts whose tokens are words, as those of a scripted model are."""
    made = ActionPrompt(MethodConfig(max_prompt=max_prompt, max_tokens=40), ToyEnv.spec, view)
    made.setup(Kit({"policy": model or ScriptedModel(["-"])}))
    return made


def steps(*actions: str | None) -> list[Step]:
    done = trajectory(0, malformed=[False] * len(actions)).steps
    return [
        Step(s.index, action, s.observation, s.page, s.anchor, 0.0) for s, action in zip(done, actions, strict=True)
    ]


def told(shown: list[Step]) -> str:
    """One word before the steps, and one for each action's number."""
    return " ".join(["do", *(f"{step.index} {step.action}" for step in shown)])


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (7, "do 1 a 2 b 3 c"),
        (6, "do 2 b 3 c"),
        (5, "do 2 b 3 c"),
        (4, "do 3 c"),
        (2, "do"),
        (1, "do"),
    ],
)
def test_the_oldest_steps_go_first(limit, text):
    for view in ("compact", "full"):
        assert bounded(limit, view=view).fit("action", steps("a", "b", "c"), told) == Prompt.user(text)


def test_what_is_too_long_without_any_step_fails_its_episode_alone():
    with pytest.raises(
        EpisodeFailed, match=r"judgment prompt of 4 tokens exceeds max_prompt=3 .* raise max_prompt"
    ) as error:
        bounded(3).fit("judgment", steps("a"), lambda shown: f"one two three four {told(shown)}"[:18], role="judge")
    assert error.value.status is Status.ENV_ERROR


def test_rambling_actions_are_cut_only_where_the_compact_prompt_is_too_long():
    long = " ".join("abcdefghijklmnop")
    assert bounded(18).fit("action", steps(long), told).text == f"do 1 {long}"
    assert bounded(17).fit("action", steps(long), told).text == "do 1 a b c d e f g h i j k l"
    assert bounded(17).fit("action", steps("old", long, None), told).text == "do 2 a b c d e f g h i j k l 3 None"
    assert bounded(17, view="full").fit("action", steps(long), told).text == "do"


class Short(ScriptedModel):
    """Few positions, and three tokens to a word."""

    positions = 49

    def count(self, prompt: Prompt) -> int:
        return 3 * super().count(prompt)


def test_the_model_that_is_asked_counts_and_its_positions_are_a_limit_too():
    """49 positions leave 9 tokens, three words, beside a response of 40."""
    one = ActionPrompt(MethodConfig(max_prompt=100, max_tokens=40), ToyEnv.spec, "compact")
    one.setup(Kit({"policy": ScriptedModel(["-"]), "judge": Short(["-"])}))
    assert one.fit("action", steps("a", "b"), told).text == "do 1 a 2 b"
    assert one.fit("judgment", steps("a", "b"), told, role="judge").text == "do 2 b"


def test_the_prompts_of_an_episode_are_bounded():
    there = world()
    one = episode(there, goal=5)
    whole = ActionPrompt(MethodConfig(history=-1), ToyEnv.spec, "full")

    async def main() -> list[str]:
        for _ in range(4):
            await one.step("right")
        words = len(whole.act(one).text.split())
        return [bounded_text(one, limit) for limit in (words, words - 1)]

    def bounded_text(one, limit):
        made = ActionPrompt(MethodConfig(history=-1, max_prompt=limit), ToyEnv.spec, "full")
        made.setup(Kit({"policy": ScriptedModel(["-"])}))
        return made.act(one).text

    all_shown, cut = play(there, main())[0]
    assert "The last 4:" in all_shown
    assert "The last 3:" in cut
    assert "[1]" not in cut
    assert "Your task: Walk from" in cut


# -- closed vocabularies ----------------------------------------------------------------------------------------


class Reader(ScriptedModel):
    vocabulary = frozenset("act ; did none malformed red green".split())


class Walls(ToyEnv):
    def vocabulary(self):
        return ["red", "green"]


class AnyWalls(ToyEnv):
    def vocabulary(self):
        return []


class OtherWalls(ToyEnv):
    def vocabulary(self):
        return ["red", "blue", "white"]


def check(env, *, prompts: str | None = None, **roles: ScriptedModel) -> None:
    kit = Kit({"policy": ScriptedModel(["-"]), **roles})
    check_words(Vanilla(MethodConfig(prompts=prompts), spec=ToyEnv.spec, view=env.view, seed=0), kit, env)


def test_models_of_a_closed_vocabulary_play_in_worlds_whose_words_they_know():
    check(Walls(view="compact"), policy=Reader(["-"]))
    for env in (ToyEnv(view="full"), AnyWalls(view="compact"), OtherWalls(view="compact", data="official")):
        check(env)  # other models read anything


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Walls(view="full"), r"reads 7 words alone, and the full view holds any; use --view compact, or --model"),
        (AnyWalls(view="compact"), "environment 'toy' holds any; use embedded data if there are any, or --model"),
        (AnyWalls(view="compact", data="official"), "environment 'toy' with --env-data holds any"),
        (OtherWalls(view="compact"), r"not 2 of environment 'toy' \(blue, white\); use a policy that knows them, or"),
    ],
)
def test_other_words_are_refused_with_a_way_out(env, message):
    with pytest.raises(UnsupportedOption, match=f"the policy 'scripted' .*{message}.* transformers:ID"):
        check(env, policy=Reader(["-"]))
    with pytest.raises(UnsupportedOption, match=r"the judge 'scripted' .* --model judge=transformers:ID"):
        check(env, judge=Reader(["-"]))


def test_templates_in_other_words_are_refused(tmp_path):
    (tmp_path / "compact").mkdir()
    (tmp_path / "compact" / "action.txt").write_text("act {description} please {context}")
    with pytest.raises(UnsupportedOption, match=r"not 1 of the prompts \(please\)"):
        check(Walls(view="compact"), prompts=str(tmp_path), policy=Reader(["-"]))


def test_words_of_contexts_and_histories_are_asked_for_too():
    short = Reader(["-"])
    short.vocabulary = Reader.vocabulary - {"malformed"}
    with pytest.raises(UnsupportedOption, match=r"not 1 of the prompts \(malformed\)"):
        check(Walls(view="compact"), policy=short)


def test_the_shipped_policy_knows_its_world_and_its_templates():
    kit = Kit({"policy": open_model("mini", ModelContext("webshop"))})
    for name in ("vanilla", "react", "grpo", "strata"):
        method = load_method(name)(load_method(name).Config(), spec=WebShop.spec, view="compact", seed=0)
        check_words(method, kit, WebShop(view="compact"))
