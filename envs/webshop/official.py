"""The official WebShop files, read from a folder of the user's: products, goals, and complaints that help.

The files of princeton-nlp/WebShop (rules of its engine, 64fa2a5) and of AgentGym, which carries the same data:

    items_shuffle_1000.json or items_shuffle.json      products
    items_ins_v2_1000.json or items_ins_v2.json        attributes and synthetic instructions by asin
    items_human_ins.json                               human instructions by asin; needed for human goals
    reviews.json                                       optional: ratings and reviews

The published code draws prices and limits unseeded, so that its instructions differ between processes; here they take a
seed.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from envs.webshop.goals import GoalSplits, goal_for, official_splits, option_phrase, price_limit
from envs.webshop.schema import Goal, Product, Review
from harness.env import DataError

GoalKind = Literal["synthetic", "human"]
PRODUCTS = ("items_shuffle_1000.json", "items_shuffle.json")
INSTRUCTIONS = ("items_ins_v2_1000.json", "items_ins_v2.json")
HUMAN = ("items_human_ins.json",)
REVIEWS = ("reviews.json",)
UNPRICED = (100.0, "$100.0")
LONGEST_ASIN = 10
_KINDS: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
_BRAND = re.compile(r"^(?:Brand: (?P<named>.+)|Visit the (?P<store>.+) Store)$")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def load_official(
    path: str | Path, *, goals: GoalKind = "synthetic", seed: int = 233
) -> tuple[tuple[Product, ...], GoalSplits]:
    """Products and goals of the official data.

    Args:
        path: folder that holds the files.
        goals: "synthetic" (one for each combination of option values, as AgentGym and verl-agent play) or "human".
        seed: of the prices that are drawn from ranges, then of the price limits; the split has its own, official seed.

    Returns:
        Products in the order of the file, and goals split as officially. Files with fewer than 1,501 goals leaves
        train, then validation, empty.

    Raises:
        DataError: a file that is missing, malformed or without products or goals; names file, place, field, way out.
        ValueError: an unknown kind of goals.
    """
    if goals not in ("synthetic", "human"):
        raise ValueError(f"unknown kind of WebShop goals {goals!r}; take 'synthetic' or 'human'")
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; pass the one that holds {PRODUCTS[0]} and {INSTRUCTIONS[0]}")
    rng = random.Random(seed)
    file = _find(folder, INSTRUCTIONS)
    instructions = {asin: _Entry(file, f"asin {asin!r}", values) for asin, values in _by_asin(file, dict)}
    reviews = _reviews(folder)
    products = tuple(_products(folder, instructions, reviews, rng))
    if goals == "synthetic":
        source, drawn = "an instruction in items_ins_v2", list(_synthetic(products, instructions, rng))
    else:
        source, drawn = "an entry with attributes in items_human_ins", list(_human(products, folder, rng))
    if not drawn:
        raise DataError(f"{folder}: no {goals} goal, since no product has {source}; the files must be of one download")
    return products, official_splits(drawn)


@dataclass(frozen=True)
class _Entry:
    """One object of a file, with its place for complaints."""

    file: Path
    place: str
    values: Mapping[str, Any]

    def get(self, field: str, kind: type) -> Any:
        """A field that must be there and of a kind."""
        if field not in self.values:
            self.fail(field, "is missing")
        return self.check(field, self.values[field], kind)

    def check(self, field: str, value: Any, kind: type) -> Any:
        if not isinstance(value, kind):
            self.fail(field, f"must be {_KINDS[kind]}, found {value!r:.80}")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """A field that must be a list of texts."""
        return tuple(self.check(f"{field}[{at}]", text, str) for at, text in enumerate(self.get(field, list)))

    def fail(self, field: str, problem: str) -> NoReturn:
        raise DataError(
            f"{self.file}: {self.place}, field {field!r} {problem}; mend or remove the entry, or fetch the file again"
        )


def _find(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} holds no {' or '.join(names)}; fetch it with the WebShop data and put it there")


def _read(file: Path, kind: type) -> Any:
    """A JSON file whose outermost value must be of a kind."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DataError(
            f"{file}: line {error.lineno}, column {error.colno} is not JSON ({error.msg}); fetch the file again"
        ) from error
    except (UnicodeDecodeError, OSError) as error:
        raise DataError(f"{file}: cannot be read as UTF-8 text ({error}); fetch the file again") from error
    if not isinstance(content, kind):
        raise DataError(f"{file}: must hold {_KINDS[kind]}, found {type(content).__name__}; fetch the file again")
    return content


def _entries(file: Path) -> Iterator[_Entry]:
    """Objects of a file that is a list of them, each with an asin."""
    for index, values in enumerate(_read(file, list)):
        if not isinstance(values, dict):
            raise DataError(f"{file}: record {index} must be an object, found {values!r:.80}; fetch the file again")
        yield _Entry(file, f"record {index} (asin {values.get('asin')!r})", values)


def _by_asin(file: Path, kind: type) -> Iterator[tuple[str, Any]]:
    """Asins and values of a file that is an object by asin, each value of a kind."""
    whole = _Entry(file, "top level", _read(file, dict))
    return ((asin, whole.check(asin, value, kind)) for asin, value in whole.values.items())


def _products(
    folder: Path,
    instructions: Mapping[str, _Entry],
    reviews: Mapping[str, tuple[float | None, tuple[Review, ...]]],
    rng: random.Random,
) -> Iterator[Product]:
    file = _find(folder, PRODUCTS)
    seen: set[str] = set()
    for entry in _entries(file):
        asin = entry.get("asin", str)
        if asin == "nan" or len(asin) > LONGEST_ASIN or asin in seen:
            continue
        seen.add(asin)
        price, tag = _price(entry, rng)
        attributes = instructions[asin].texts("attributes") if "attributes" in _values(instructions, asin) else ()
        rating, texts = reviews.get(asin, (None, ()))
        yield Product(
            asin=asin,
            title=entry.get("name", str),
            brand=_brand(entry),
            category=entry.get("product_category", str),
            query=entry.get("query", str).lower().strip(),
            description=entry.get("full_description", str),
            bullets=_bullets(entry),
            price=price,
            price_tag=tag,
            options=_options(entry),
            attributes=attributes or ("DUMMY_ATTR",),
            rating=rating,
            reviews=texts,
        )
    if not seen:
        raise DataError(f"{file}: holds no product with an asin of at most {LONGEST_ASIN} characters; fetch it again")


def _values(entries: Mapping[str, _Entry], asin: str) -> Mapping[str, Any]:
    return entries[asin].values if asin in entries else {}


def _price(entry: _Entry, rng: random.Random) -> tuple[float, str]:
    """Price in dollars and its tag; of a range, a price between the first two amounts is drawn."""
    pricing = entry.values.get("pricing") or ""
    amounts = []
    for part in entry.check("pricing", pricing, str).split("$")[1:]:
        digits = re.sub(r"[^\d.]", "", part)
        if not _NUMBER.fullmatch(digits):
            entry.fail("pricing", f"must name dollars as in '$12.50' or '$10.00 - $20.00', found {pricing!r:.80}")
        amounts.append(float(digits))
    if not amounts:
        return UNPRICED
    if len(amounts) == 1:
        return amounts[0], f"${amounts[0]}"
    return rng.uniform(amounts[0], amounts[1]), f"${amounts[0]} to ${amounts[1]}"


def _brand(entry: _Entry) -> str:
    """Name of the maker out of "Brand: NAME" or "Visit the NAME Store"; empty where the data name none."""
    text: str = entry.check("brand", entry.values.get("brand") or "", str).strip()
    match = _BRAND.match(text)
    return (match["named"] or match["store"]) if match else text


def _bullets(entry: _Entry) -> tuple[str, ...]:
    field = "small_description"
    if isinstance(entry.values.get(field), str):
        return (entry.values[field],)
    return entry.texts(field)


def _options(entry: _Entry) -> dict[str, tuple[str, ...]]:
    """Option values by option name, lower case; an empty text stands for no options, null for no values."""
    field = "customization_options"
    if field in entry.values and not entry.values[field]:
        return {}
    options = {}
    for name, contents in entry.get(field, dict).items():
        if contents is None:
            continue
        values = []
        for index, content in enumerate(entry.check(f"{field}.{name}", contents, list)):
            where = f"{field}.{name}[{index}]"
            value = _Entry(entry.file, f"{entry.place}, {where}", entry.check(where, content, dict)).get("value", str)
            values.append(value.strip().replace("/", " | ").lower())
        options[name.lower()] = tuple(values)
    return options


def _reviews(folder: Path) -> dict[str, tuple[float | None, tuple[Review, ...]]]:
    """Average rating and reviews by asin; nothing without the file."""
    if not (folder / REVIEWS[0]).is_file():
        return {}
    found = {}
    for entry in _entries(folder / REVIEWS[0]):
        texts = []
        for index, content in enumerate(entry.get("reviews", list)):
            where = f"reviews[{index}]"
            review = _Entry(entry.file, f"{entry.place}, {where}", entry.check(where, content, dict))
            stars = _stars(review, "score" if "score" in review.values else "stars")
            if stars is None:
                review.fail("stars", "is empty")
            body = review.get("review", str) if "review" in review.values else ""
            texts.append(Review(review.get("title", str), stars, body))
        found[entry.get("asin", str)] = (_stars(entry, "average_rating"), tuple(texts))
    return found


def _stars(entry: _Entry, field: str) -> float | None:
    """A number of stars, also as "4.5" or "4.5 out of 5 stars"; None for "", "N.A." and null."""
    if field not in entry.values:
        entry.fail(field, "is missing")
    value = entry.values[field]
    if value in ("", "N.A.", None):
        return None
    match = _NUMBER.match(str(value))
    if match is None or isinstance(value, bool) or not 0 <= float(match[0]) <= 5:
        entry.fail(field, f"must be a number of stars from 0 to 5, found {value!r:.80}")
    return float(match[0])


def _synthetic(products: Sequence[Product], instructions: Mapping[str, _Entry], rng: random.Random) -> Iterator[Goal]:
    """A goal for each combination of option values of each product that has an instruction; one limit a product."""
    for product in products:
        if _values(instructions, product.asin).get("instruction") is None:
            continue
        entry = instructions[product.asin]
        text, attributes = entry.get("instruction", str), entry.texts("instruction_attributes")
        if not attributes:
            entry.fail("instruction_attributes", "is empty although there is an instruction")
        limit = price_limit(product.price, rng)
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            options = dict(zip(names, values, strict=True))
            yield goal_for(product, text + option_phrase(options), attributes, options, limit)


def _human(products: Sequence[Product], folder: Path, rng: random.Random) -> Iterator[Goal]:
    """A goal for each human instruction that names attributes; each draws its own limit."""
    file = _find(folder, HUMAN)
    written = dict(_by_asin(file, list))
    for product in products:
        for index, values in enumerate(written.get(product.asin, ())):
            place = f"asin {product.asin!r}, entry {index}"
            if not isinstance(values, dict):
                raise DataError(f"{file}: {place} must be an object, found {values!r:.80}; fetch the file again")
            entry = _Entry(file, place, values)
            attributes = entry.texts("instruction_attributes")
            if not attributes:
                continue
            options = _named(entry, product)
            limit = price_limit(product.price, rng)
            yield goal_for(product, entry.get("instruction", str).strip("."), attributes, options, limit)


def _named(entry: _Entry, product: Product) -> dict[str, str]:
    """Wanted values by option name.

    Human entries list bare values. Each gets the name of the product's first free option that offers it, else a number:
    names do not count for the reward, so that no value may be lost over them.
    """
    named: dict[str, str] = {}
    for value in entry.texts("instruction_options"):
        offering = [name for name, values in product.options.items() if value in values]
        names = itertools.chain(offering, (f"option {number}" for number in itertools.count(1)))
        named[next(name for name in names if name not in named)] = value
    return named
