"""The shop's search engine: BM25 as Lucene computes it, so that rankings are those of the original WebShop.

WebShop searches with Anserini's defaults (k1 0.9, b 0.4, English analysis). What it takes to come out with the same
first page: Lucene's idf and its one-byte document lengths, a tokenizer close to Unicode word breaks (UAX #29), its 33
stop words, Porter stems, and ties in document order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import snowballstemmer

from envs.webshop.schema import Product

HITS = 50
"""Products that a search returns at most."""

K1, B = 0.9, 0.4
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# A word is started by a number with inner . , ; ' or by letters with inner ' . : · or by any word character, and goes
# on over word characters and such inner joints.
_WORD = re.compile(
    r"(?:[0-9]+(?:[.,;'][0-9]+)+|[^\W\d_]+(?:['’.:·][^\W\d_]+)+|\w)"
    r"(?:\w|(?<=[0-9])[.,;'’](?=[0-9])|(?<=[^\W\d_])['’.:·](?=[^\W\d_]))*"
)


class Analyzer:
    """Text to index terms: words, lower case, possessive 's off, stop words off, Porter stems (remembered)."""

    def __init__(self) -> None:
        self._stem = snowballstemmer.stemmer("porter").stemWord
        self._terms: dict[str, str | None] = {}

    def __call__(self, text: str) -> list[str]:
        terms = (self._term(word) for word in _WORD.findall(text))
        return [term for term in terms if term is not None]

    def _term(self, word: str) -> str | None:
        if word not in self._terms:
            bare = word.lower().removesuffix("'s").removesuffix("’s")
            self._terms[word] = None if bare in STOP_WORDS else self._stem(bare)
        return self._terms[word]


def stored_length(length: int) -> int:
    """The document length that Lucene's one byte keeps: exact below 40, then 24 plus the top 4 bits of the rest."""
    if length < 40:
        return length
    rest = length - 24
    shift = rest.bit_length() - 4
    return 24 + ((rest >> shift) << shift)


class SearchIndex:
    """BM25 over a list of documents.

    A term t that occurs f times in a document of stored length n adds
    idf(t) * f / (f + k1 * (1 - b + b * n / mean length)), with idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5)).
    """

    def __init__(self, documents: Sequence[str]) -> None:
        """Index the documents.

        Args:
            documents: texts; a hit is a position in this list.

        Raises:
            ValueError: there is no document.
        """
        if not documents:
            raise ValueError("a search index needs at least one document, got none; is the catalogue empty?")
        self.analyze = Analyzer()
        self.size = len(documents)
        counts = [Counter(self.analyze(document)) for document in documents]
        lengths = [count.total() for count in counts]
        mean_length = max(sum(lengths) / self.size, 1.0)
        found: dict[str, tuple[list[int], list[float]]] = {}
        for position, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            norm = K1 * (1 - B + B * stored_length(length) / mean_length)
            for term, frequency in count.items():
                positions, weights = found.setdefault(term, ([], []))
                positions.append(position)
                weights.append(frequency / (frequency + norm))
        self._postings = {
            term: (np.array(positions), self._idf(len(positions)) * np.array(weights))
            for term, (positions, weights) in found.items()
        }

    def _idf(self, document_frequency: int) -> float:
        return math.log(1 + (self.size - document_frequency + 0.5) / (document_frequency + 0.5))

    def scores(self, query: str) -> np.ndarray:
        """BM25 score of every document, float64, shape [documents]; 0 where no term of the query occurs."""
        scores = np.zeros(self.size)
        for term, times in Counter(self.analyze(query)).items():
            if term in self._postings:
                positions, weights = self._postings[term]
                scores[positions] += times * weights
        return scores

    def search(self, query: str, limit: int = HITS) -> list[int]:
        """Positions of the best documents that share a term with the query, best first, ties in document order."""
        scores = self.scores(query)
        matching = np.flatnonzero(scores)
        best = np.argsort(-scores[matching], kind="stable")[:limit]
        hits: list[int] = matching[best].tolist()
        return hits


def search_text(product: Product) -> str:
    """What is indexed of a product: title, description, first bullet point, options; lower case."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    return " ".join((product.title, product.description, *product.bullets[:1], options)).lower()
