"""A shop of five products and one goal: small enough to know every page and every reward by heart."""

from __future__ import annotations

from dataclasses import replace

from envs.webshop.nouns import LexiconNouns
from envs.webshop.schema import Goal, Product, Review

NOUNS = LexiconNouns(["mug", "lamp", "kettle", "cup"])

SLIM_MUG = Product(
    asin="B0SLIMMUG1",
    title="Norvik Slim Cotton Mug",
    brand="Norvik",
    category="Kitchen › Tableware › Mug",
    query="mug",
    description="A mug that is slim.",
    bullets=("Engraved by design", "A good gift"),
    price=27.5,
    price_tag="$27.50",
    options={"color": ("red", "dark blue"), "size": ("small", "large")},
    attributes=("slim", "cotton", "engraved"),
    rating=4.5,
    reviews=(Review("love it", 5.0, "it is slim"), Review("okay", 3.0, "the box was late")),
)
DEAR_MUG = replace(
    SLIM_MUG, asin="B0DEARMUG2", title="Slim Tamsel Mug", brand="Tamsel", price=55.0, price_tag="$51.00 to $58.00"
)
PLAIN_MUG = replace(
    SLIM_MUG,
    asin="B0PLAINMG3",
    title="Norvik Heavy Mug",
    description="",
    bullets=(),
    options={},
    attributes=("heavy",),
    rating=None,
    reviews=(),
)
KETTLE = replace(
    PLAIN_MUG, asin="B0KETTLE04", title="Ovello Slim Kettle", brand="Ovello", query="kettle",
    category="Kitchen › Cookware › Kettle", attributes=("slim",),
)  # fmt: skip
LAMP = replace(
    PLAIN_MUG, asin="B0LAMP0005", title="Norvik Modern Lamp", query="lamp", category="Decor › Furnishing › Lamp",
    attributes=("modern",),
)  # fmt: skip
PRODUCTS = (SLIM_MUG, DEAR_MUG, PLAIN_MUG, KETTLE, LAMP)

GOAL = Goal(
    asin="B0SLIMMUG1",
    instruction="find me slim cotton mug with color: red, and size: large, and price lower than 40.00 dollars",
    attributes=("slim", "cotton"),
    options={"color": "red", "size": "large"},
    price_upper=40.0,
    category=SLIM_MUG.category,
    query="mug",
    title=SLIM_MUG.title,
)
CHOSEN = {"color": "red", "size": "large"}
