"""The lexicon of the embedded WebShop: every word that its catalogue, goals and reviews can hold.

A very small policy has to learn this world, so the lexicon is closed and plain. Words are whole tokens; none is a stop
word of the search engine; no two of them share a Porter stem; no attribute is part of another word, because the reward
accepts an attribute wherever its letters stand. All texts and brands are our own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class ProductType:
    """A kind of thing that is sold.

    Attributes:
        name: noun of one or two words, lower case; also the query that its products are listed under.
        attributes: what its products can be; several types share a word.
    """

    name: str
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aisle:
    """A category of the shop.

    Attributes:
        department: first part of the category.
        options: names of the options that its products can come with, keys of `OPTION_VALUES`.
        purpose: what its products are for, in the words of a description.
        shelves: second part of the category -> types that lie there; the third part is the type.
    """

    department: str
    options: tuple[str, ...]
    purpose: str
    shelves: dict[str, tuple[ProductType, ...]]


def _type(name: str, attributes: str) -> ProductType:
    return ProductType(name, tuple(attributes.split()))


AISLES: tuple[Aisle, ...] = (
    Aisle("Clothing", ("color", "fit"), "every season", {
        "Wardrobe": (
            _type("shirt", "cotton slim striped casual formal washable breathable vintage"),
            _type("skirt", "cotton slim striped lined casual formal stretchy vintage"),
            _type("jacket", "waterproof hooded lined slim casual warm vintage washable"),
        ),
        "Knitwear": (
            _type("sweater", "fleece slim striped hooded casual warm washable stretchy"),
            _type("scarf", "cotton fleece striped warm casual formal woven vintage"),
            _type("hat", "fleece knitted striped casual waterproof warm vintage breathable"),
        ),
    }),
    Aisle("Kitchen", ("color", "size"), "home cooking", {
        "Tableware": (
            _type("mug", "ceramic steel insulated stackable glazed engraved vintage heavy"),
            _type("bowl", "ceramic wooden stackable glazed engraved rustic durable heavy"),
            _type("tray", "wooden steel stackable engraved polished rustic portable heavy"),
        ),
        "Cookware": (
            _type("kettle", "steel ceramic insulated portable heavy durable vintage polished"),
            _type("skillet", "nonstick steel heavy durable stackable polished seasoned rustic"),
            _type("cutting board", "wooden engraved durable reversible portable polished rustic nonslip"),
        ),
    }),
    Aisle("Decor", ("color", "pattern"), "cozy rooms", {
        "Textiles": (
            _type("pillow", "cotton linen velvet knitted washable reversible vintage fluffy"),
            _type("blanket", "cotton fleece knitted woven washable reversible fluffy warm"),
            _type("curtain", "linen velvet cotton woven lined heavy washable modern"),
        ),
        "Furnishing": (
            _type("lamp", "wooden ceramic modern vintage rustic portable foldable adjustable"),
            _type("rug", "cotton woven knitted reversible washable nonslip fluffy vintage"),
            _type("picture frame", "wooden steel modern vintage rustic engraved polished foldable"),
        ),
    }),
    Aisle("Beauty", ("scent", "size"), "daily care", {
        "Skin": (
            _type("lotion", "organic vegan gentle soothing hydrating natural creamy herbal"),
            _type("serum", "organic vegan soothing hydrating mineral nourishing natural lightweight"),
            _type("face mask", "organic vegan mineral soothing creamy exfoliating hydrating natural"),
        ),
        "Bath": (
            _type("soap", "organic vegan gentle foaming natural herbal mineral exfoliating"),
            _type("shampoo", "organic vegan gentle foaming hydrating herbal natural nourishing"),
            _type("lip balm", "organic vegan soothing hydrating creamy nourishing natural tinted"),
        ),
    }),
    Aisle("Grocery", ("flavor", "pack"), "busy mornings", {
        "Pantry": (
            _type("tea", "organic vegan herbal natural unsweetened kosher instant roasted"),
            _type("coffee", "organic vegan roasted instant unsweetened kosher creamy natural"),
            _type("jam", "organic vegan natural unsweetened kosher chunky creamy spiced"),
        ),
        "Snacks": (
            _type("granola", "organic vegan crunchy roasted unsweetened chewy kosher natural"),
            _type("popcorn", "organic vegan crunchy roasted glazed kosher spiced natural"),
            _type("protein bar", "organic vegan crunchy chewy unsweetened kosher glazed natural"),
        ),
    }),
    Aisle("Electronics", ("color", "edition"), "work or play", {
        "Audio": (
            _type("headset", "wireless foldable rechargeable adjustable lightweight quiet portable durable"),
            _type("speaker", "wireless portable waterproof rechargeable compact magnetic durable vintage"),
            _type("webcam", "wireless portable compact adjustable magnetic foldable lightweight modern"),
        ),
        "Accessories": (
            _type("charger", "wireless portable foldable magnetic compact slim durable modern"),
            _type("keyboard", "wireless slim backlit rechargeable quiet compact foldable adjustable"),
            _type("phone case", "slim magnetic waterproof durable lightweight foldable striped engraved"),
        ),
    }),
)  # fmt: skip

# A shade keeps its colour first in the alphabet ("blue" < "dark"), because the reward reduces a value to the first
# colour word of an alphabetical list: "dark blue" and "blue" are one colour to it, "dark green" might be another.
OPTION_VALUES: dict[str, tuple[str, ...]] = {
    "color": ("black", "white", "red", "blue", "dark blue", "green", "yellow", "purple", "pink", "brown"),
    "fit": ("petite", "short", "regular", "tall", "plus"),
    "size": ("mini", "small", "medium", "large", "jumbo"),
    "pattern": ("plain", "floral", "dotted", "checked", "zigzag"),
    "scent": ("rose", "lavender", "mint", "citrus", "coconut", "jasmine", "cedar", "amber"),
    "flavor": ("chocolate", "vanilla", "strawberry", "cherry", "honey", "cinnamon", "lemon", "caramel"),
    "pack": ("single", "double", "triple", "bulk"),
    "edition": ("classic", "sport", "studio", "travel", "gaming"),
}

# fmt: off
BRANDS: tuple[str, ...] = (
    "Norvik", "Tamsel", "Ovello", "Brindra", "Kestria", "Luvano", "Mirrow", "Quenta", "Pellora", "Zandel",
    "Halvor", "Corvane", "Dulmar", "Estiva", "Gralto", "Ibexa", "Jovira", "Wembry", "Yorrin", "Fallow",
)
# fmt: on

OPENINGS: tuple[str, ...] = ("find me", "i need", "show me")
"""How a shopper begins; the wanted attributes and the type follow."""

DESCRIPTIONS: tuple[str, ...] = (
    "This {type} from {brand} is {attributes}. Made for {purpose}.",
    "{brand} made this {type} for {purpose}. It is {attributes}.",
    "Made for {purpose}: the {type} from {brand}, which is {attributes}.",
)
FIRST_BULLETS: tuple[str, ...] = ("{attributes} and made to last", "{attributes} by design")
BULLETS: tuple[str, ...] = ("a good gift", "ships in a recycled box", "money back within a month", "inspected by hand")
REVIEWS: tuple[tuple[int, str, str], ...] = (
    (5, "love it", "the {type} is as {attribute} as they say"),
    (4, "good buy", "works well and is really {attribute}"),
    (3, "okay", "{attribute} but the box was late"),
    (2, "not for me", "the {type} did not last"),
)
"""Stars, title and body of the reviews that customers write."""

CONNECTIVES: tuple[str, ...] = ("with", "and", "price", "lower", "than", "dollars", "to")
"""Words of the official option and price phrases and of a price range, beside names and values."""


def product_types() -> tuple[ProductType, ...]:
    """All types in the order of the aisles."""
    return tuple(kind for aisle in AISLES for shelf in aisle.shelves.values() for kind in shelf)


@cache
def nouns() -> frozenset[str]:
    """Words that name a type; what the reward compares titles by in this world.

    Brands are left out, though a tagger would call them proper nouns: a mug is no lamp because one firm makes both.
    """
    return frozenset(word for kind in product_types() for word in kind.name.split())


@cache
def attributes() -> tuple[str, ...]:
    """All attribute words, sorted."""
    return tuple(sorted({word for kind in product_types() for word in kind.attributes}))


def words_of(text: str) -> list[str]:
    """Words of a text, lower case, in order; digits and punctuation are not words."""
    return re.findall(r"[a-z]+", text.lower())


@cache
def vocabulary() -> tuple[str, ...]:
    """Every word that the embedded catalogue, goals and instructions can hold, lower case and sorted.

    Numbers, prices and asins are not words: a view decides how it spells them.
    """
    texts = [*BRANDS, *OPENINGS, *FIRST_BULLETS, *BULLETS, *DESCRIPTIONS, *CONNECTIVES, *attributes(), *nouns()]
    texts += [part for aisle in AISLES for part in (aisle.department, aisle.purpose, *aisle.shelves)]
    texts += [text for name, values in OPTION_VALUES.items() for text in (name, *values)]
    texts += [text for _, title, body in REVIEWS for text in (title, body)]
    return tuple(sorted({word for text in texts for word in words_of(re.sub(r"\{\w+\}", " ", text))}))
