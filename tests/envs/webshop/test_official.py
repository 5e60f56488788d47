"""The loader of the official files, on small files of the official form."""

import json
import random

import pytest

from envs.webshop.goals import digest
from envs.webshop.official import load_official
from harness.env import DataError

PRODUCTS, INSTRUCTIONS = "items_shuffle_1000.json", "items_ins_v2_1000.json"
HUMAN, REVIEWS = "items_human_ins.json", "reviews.json"


def product(asin, **fields):
    return {
        "name": f"Thing {asin}",
        "brand": "Brand: Norvik",
        "full_description": "A thing.",
        "pricing": "$12.50",
        "product_category": "Kitchen › Tableware › Mugs",
        "small_description": ["holds tea ", "is blue "],
        "customization_options": "",
        "asin": asin,
        "category": "garden",
        "query": " Coffee Mugs",
        **fields,
    }


def values(*texts):
    return [{"is_selected": False, "value": text, "image": None} for text in texts]


def official_files():
    """Four products that are kept and three that are skipped, with all their companions."""
    return {
        PRODUCTS: [
            product("B000000001", customization_options={"Size": values("S/M", " Large "), "Color": values("Red")}),
            product("B000000002", pricing="$1,010.00 - $1,020.00", small_description="one text", brand=""),
            product("nan"),
            product("B0000000031"),
            product("B000000001", name="Repeated"),
            product("B000000004", pricing="", brand="Visit the Ovello Store", customization_options={"Color": None}),
            product("B000000005", pricing=None, customization_options={"Color": values("red", "blue")}),
        ],
        INSTRUCTIONS: {
            "B000000001": {
                "attributes": ["dishwasher safe", "easy clean"],
                "instruction": "Find me dishwasher safe mugs",
                "instruction_attributes": ["dishwasher safe"],
            },
            "B000000002": {
                "attributes": ["bpa free"],
                "instruction": "Find me bpa free mugs",
                "instruction_attributes": ["bpa free"],
            },
            "B000000005": {"attributes": [], "instruction": None, "instruction_attributes": None},
        },
        HUMAN: {
            "B000000001": [
                {
                    "instruction": "i need a red mug that is easy to clean.",
                    "instruction_attributes": ["easy clean"],
                    "instruction_options": ["red", "s | m"],
                },
                {"instruction": "a mug", "instruction_attributes": [], "instruction_options": []},
                {
                    "instruction": "two reds",
                    "instruction_attributes": ["easy clean"],
                    "instruction_options": ["red", "red", "huge"],
                },
            ],
            "B0ELSEWHER": [{"instruction": "x", "instruction_attributes": ["y"], "instruction_options": []}],
        },
        REVIEWS: [
            {
                "asin": "B000000001",
                "average_rating": 4.5,
                "reviews": [
                    {"title": "good", "stars": "5.0 out of 5 stars", "review": "fine mug"},
                    {"title": "bad", "score": 1, "body": "not read, as in the published code"},
                ],
            },
            {"asin": "B000000002", "average_rating": "N.A.", "reviews": []},
        ],
    }


@pytest.fixture
def write(tmp_path):
    """Writes files (by default the sound ones) into a folder and gives its path."""

    def write(files=None, without=()):
        for name, content in (files or official_files()).items():
            if name not in without:
                (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        return tmp_path

    return write


def test_products_are_read_by_the_official_rules(write):
    products, _ = load_official(write())
    first, second, third, fourth = products
    assert [p.asin for p in products] == ["B000000001", "B000000002", "B000000004", "B000000005"]
    assert first.title == "Thing B000000001"
    assert first.query == "coffee mugs"
    assert first.category == "Kitchen › Tableware › Mugs"
    assert first.bullets == ("holds tea ", "is blue ")
    assert second.bullets == ("one text",)
    assert first.options == {"size": ("s | m", "large"), "color": ("red",)}
    assert (second.options, third.options) == ({}, {})
    assert first.attributes == ("dishwasher safe", "easy clean")
    assert third.attributes == fourth.attributes == ("DUMMY_ATTR",)
    assert [p.brand for p in products] == ["Norvik", "", "Ovello", "Norvik"]


def test_prices_are_the_first_two_amounts_and_100_dollars_without_any(write):
    products, _ = load_official(write())
    assert [p.price_tag for p in products] == ["$12.5", "$1010.0 to $1020.0", "$100.0", "$100.0"]
    assert [p.price for p in products if p.asin != "B000000002"] == [12.5, 100.0, 100.0]
    assert 1010 <= products[1].price <= 1020


def test_the_seed_draws_prices_and_limits(write):
    folder = write()
    products, goals = load_official(folder, seed=1)
    assert products[1].price == random.Random(1).uniform(1010, 1020)
    assert digest(*load_official(folder, seed=1)) == digest(products, goals)
    assert load_official(folder, seed=2)[0][1].price != products[1].price


def test_reviews_are_optional(write):
    products, _ = load_official(write())
    assert (products[0].rating, products[1].rating, products[2].rating) == (4.5, None, None)
    assert [(r.title, r.stars, r.body) for r in products[0].reviews] == [("good", 5.0, "fine mug"), ("bad", 1.0, "")]


def test_without_the_review_file_products_are_unrated(write):
    products, _ = load_official(write(without=(REVIEWS, HUMAN)))
    assert all(p.rating is None and p.reviews == () for p in products)


def test_synthetic_goals_are_all_combinations_with_names_sorted(write):
    _, goals = load_official(write())
    by_text = {goal.instruction.split(", and price")[0]: goal for goal in goals.test}
    assert set(by_text) == {
        "Find me dishwasher safe mugs with color: red, and size: s | m",
        "Find me dishwasher safe mugs with color: red, and size: large",
        "Find me bpa free mugs",
    }
    goal = by_text["Find me dishwasher safe mugs with color: red, and size: large"]
    assert goal.options == {"color": "red", "size": "large"}
    assert goal.attributes == ("dishwasher safe",)
    assert goal.price_upper in (30.0, 40.0, 50.0)
    assert goal.instruction.endswith(f", and price lower than {goal.price_upper:.2f} dollars")
    assert len({goal.price_upper for goal in goals.test if goal.asin == "B000000001"}) == 1


def test_a_product_above_the_last_limit_has_none(write):
    _, goals = load_official(write())
    (goal,) = (goal for goal in goals.test if goal.asin == "B000000002")
    assert (goal.price_upper, goal.instruction) == (1_000_000, "Find me bpa free mugs")


def test_human_goals_leave_out_entries_without_attributes_and_the_final_stop(write):
    _, goals = load_official(write(), goals="human")
    first, second = sorted(goals.test, key=lambda goal: len(goal.options))
    assert first.instruction.startswith("i need a red mug that is easy to clean, and price lower than ")
    assert first.options == {"color": "red", "size": "s | m"}
    assert list(second.options.values()) == ["red", "red", "huge"]


def test_no_wanted_value_is_lost_over_its_name(write):
    """A product may have an option called as our stand-in."""
    files = official_files()
    files[PRODUCTS][0]["customization_options"] = {"Option 1": values("red")}
    _, goals = load_official(write(files), goals="human")
    assert sorted(len(goal.options) for goal in goals.test) == [2, 3]


def test_texts_that_several_splits_share_are_counted(write):
    files = official_files()
    sizes = values(*(f"size {index % 1500}" for index in range(3000)))
    files[PRODUCTS][0]["customization_options"] = {"Size": sizes}
    _, goals = load_official(write(files))
    assert len(goals.test) == 500
    assert goals.removed > 0
    assert {g.instruction for g in goals.test}.isdisjoint(g.instruction for g in (*goals.train, *goals.validation))


def test_files_of_the_full_catalogue_have_other_names(write):
    files = official_files()
    files["items_shuffle.json"], files["items_ins_v2.json"] = files.pop(PRODUCTS), files.pop(INSTRUCTIONS)
    assert len(load_official(write(files))[0]) == 4


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(DataError, match=r"nowhere is no folder; pass the one that holds items_shuffle_1000\.json"):
        load_official(tmp_path / "nowhere")


def test_an_unknown_kind_of_goals(write):
    with pytest.raises(ValueError, match="unknown kind of WebShop goals 'robot'; take 'synthetic' or 'human'"):
        load_official(write(), goals="robot")


@pytest.mark.parametrize(("name", "goals"), [(PRODUCTS, "synthetic"), (INSTRUCTIONS, "synthetic"), (HUMAN, "human")])
def test_a_missing_file_is_named(write, name, goals):
    with pytest.raises(DataError, match=rf"holds no {name}.*; fetch it with the WebShop data"):
        load_official(write(without=(name,)), goals=goals)


@pytest.mark.parametrize("name", [PRODUCTS, INSTRUCTIONS, REVIEWS, HUMAN])
def test_a_truncated_file_is_named_with_its_line(write, name):
    file = write() / name
    text = json.dumps(official_files()[name], indent=1)
    file.write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(DataError, match=rf"{name}: line \d+, column \d+ is not JSON .*fetch the file again"):
        load_official(file.parent, goals="human")


def test_a_file_that_is_not_utf8(write):
    file = write() / PRODUCTS
    file.write_bytes(b'["\xff"]')
    with pytest.raises(DataError, match=f"{PRODUCTS}: cannot be read as UTF-8 text"):
        load_official(file.parent)


@pytest.mark.parametrize("name", [PRODUCTS, INSTRUCTIONS, REVIEWS, HUMAN])
def test_a_file_of_the_wrong_outer_type(write, name):
    files = {**official_files(), name: "text"}
    with pytest.raises(DataError, match=rf"{name}: must hold (a list|an object), found str"):
        load_official(write(files), goals="human")


@pytest.mark.parametrize("products", [[], [product("nan"), product("B0000000031")]], ids=["empty", "all skipped"])
def test_an_empty_catalogue(write, products):
    with pytest.raises(DataError, match=f"{PRODUCTS}: holds no product"):
        load_official(write({**official_files(), PRODUCTS: products}))


@pytest.mark.parametrize(
    ("goals", "message"),
    [("synthetic", "no synthetic goal.*items_ins_v2"), ("human", "no human goal.*items_human_ins")],
)
def test_files_of_different_downloads_share_no_product(write, goals, message):
    files = {**official_files(), INSTRUCTIONS: {}, HUMAN: {}}
    with pytest.raises(DataError, match=message):
        load_official(write(files), goals=goals)


REQUIRED = [
    "asin",
    "name",
    "query",
    "product_category",
    "full_description",
    "small_description",
    "customization_options",
]


@pytest.mark.parametrize("field", REQUIRED)
def test_a_missing_field_is_named_with_its_record(write, field):
    files = official_files()
    del files[PRODUCTS][1][field]
    place = r"record 1 \(asin None\)" if field == "asin" else r"record 1 \(asin 'B000000002'\)"
    with pytest.raises(DataError, match=rf"{PRODUCTS}: {place}, field '{field}' is missing; mend or remove"):
        load_official(write(files))


def put(files, path, value):
    """Sets what lies at a path of keys and places."""
    target = files
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return files


A1 = "B000000001"
WRONG = {
    "product is no object": ((PRODUCTS, 0), 7, "record 0 must be an object"),
    "asin is a number": ((PRODUCTS, 0, "asin"), 7, "record 0 .*'asin' must be a text, found 7"),
    "name is null": ((PRODUCTS, 0, "name"), None, "'name' must be a text, found None"),
    "brand is a list": ((PRODUCTS, 0, "brand"), ["x"], "'brand' must be a text"),
    "price is a number": ((PRODUCTS, 0, "pricing"), 12.5, "'pricing' must be a text, found 12.5"),
    "price has two points": ((PRODUCTS, 0, "pricing"), "$1.2.3", "'pricing' must name dollars"),
    "price without digits": ((PRODUCTS, 0, "pricing"), "$", "'pricing' must name dollars"),
    "bullet is null": ((PRODUCTS, 0, "small_description"), ["a", None], r"'small_description\[1\]' must be a text"),
    "bullets are null": ((PRODUCTS, 0, "small_description"), None, "'small_description' must be a list"),
    "options are a list": ((PRODUCTS, 0, "customization_options"), ["x"], "'customization_options' must be an object"),
    "option is a text": (
        (PRODUCTS, 0, "customization_options"),
        {"C": "x"},
        r"'customization_options.C' must be a list",
    ),
    "value is a text": (
        (PRODUCTS, 0, "customization_options"),
        {"C": ["x"]},
        r"'customization_options.C\[0\]' must be",
    ),
    "value is missing": (
        (PRODUCTS, 0, "customization_options"),
        {"C": [{}]},
        r"options.C\[0\], field 'value' is missing",
    ),
    "instruction entry": ((INSTRUCTIONS, A1), [], f"field '{A1}' must be an object"),
    "attributes are a text": ((INSTRUCTIONS, A1, "attributes"), "x", f"asin '{A1}', field 'attributes' must be a list"),
    "attribute is null": ((INSTRUCTIONS, A1, "attributes"), [None], r"'attributes\[0\]' must be a text"),
    "instruction is a list": ((INSTRUCTIONS, A1, "instruction"), [], "'instruction' must be a text"),
    "no goal attributes": ((INSTRUCTIONS, A1, "instruction_attributes"), [], "'instruction_attributes' is empty"),
    "null goal attributes": ((INSTRUCTIONS, A1, "instruction_attributes"), None, "'instruction_attributes' must be"),
    "review record": ((REVIEWS, 0), "x", "record 0 must be an object"),
    "reviews are null": ((REVIEWS, 0, "reviews"), None, f"asin '{A1}'.*'reviews' must be a list"),
    "review is a text": ((REVIEWS, 0, "reviews"), ["x"], r"'reviews\[0\]' must be an object"),
    "review without stars": ((REVIEWS, 0, "reviews"), [{"title": "t"}], r"reviews\[0\], field 'stars' is missing"),
    "review with empty stars": ((REVIEWS, 0, "reviews"), [{"title": "t", "stars": ""}], "'stars' is empty"),
    "rating out of range": ((REVIEWS, 0, "average_rating"), 7, "'average_rating' must be a number of stars"),
    "rating is true": ((REVIEWS, 0, "average_rating"), True, "'average_rating' must be a number of stars"),
    "rating is a word": ((REVIEWS, 0, "average_rating"), "good", "'average_rating' must be a number of stars"),
    "rating has no review asin": ((REVIEWS, 0, "asin"), None, "'asin' must be a text"),
}


@pytest.mark.parametrize(("path", "value", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_field_is_named_with_its_place(write, path, value, message):
    with pytest.raises(DataError, match=rf"{path[0]}: .*{message}.*; (mend or remove|fetch)"):
        load_official(write(put(official_files(), path, value)))


WRONG_HUMAN = {
    "entries": ((HUMAN, A1), {}, f"field '{A1}' must be a list"),
    "entry": ((HUMAN, A1, 1), "x", f"asin '{A1}', entry 1 must be an object"),
    "attributes": ((HUMAN, A1, 0, "instruction_attributes"), "x", "'instruction_attributes' must be a list"),
    "option": ((HUMAN, A1, 0, "instruction_options"), [7], r"entry 0, field 'instruction_options\[0\]' must be a text"),
    "instruction": ((HUMAN, A1, 0, "instruction"), None, "'instruction' must be a text"),
}


@pytest.mark.parametrize(("path", "value", "message"), WRONG_HUMAN.values(), ids=WRONG_HUMAN.keys())
def test_a_wrong_human_entry_is_named_with_its_place(write, path, value, message):
    with pytest.raises(DataError, match=rf"{HUMAN}: .*{message}.*; (mend or remove|fetch)"):
        load_official(write(put(official_files(), path, value)), goals="human")
