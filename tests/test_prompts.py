"""Templates, what stands in their slots, and the parsing of replies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import InputError
from harness.prompts import Scene, Template, load_template, parse_action, parse_numbers, parse_tag
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
    assert "[2] action: (a reply without a valid action)" in text
    assert "[3] action: right\n    seen then: You are at cell 2." in text
    assert "What you see now (step 4 of at most 7):\nYou are at cell 2." in text
    assert text.endswith("Possible now: left, right, stop")


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
