"""Full-text search over tools: BM25 over several fields, with stems, synonyms and similar words.

The index is built once for a list of declarations. Source: Robertson and Zaragoza, The Probabilistic Relevance
Framework: BM25 and Beyond (2009), section 3.6 (BM25F).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from difflib import SequenceMatcher
from functools import cache, lru_cache
from heapq import nsmallest
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ipymcp.protocol.types import is_array, is_object
from ipymcp.text import shortened, stripped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ipymcp.llm.providers import Declaration


_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL_CASE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_STOP_WORDS: Final = """
a about all also am an and any are as at be been being but by can could did do does for from had has have he her him his
how i if in into is it its just let like may me might must my need now of off on only or our out over please shall she
should so some somebody someone something everything everyone everybody anything anyone nothing every each both such
than that the their them then there these they thing this those to too
under up us use using want was we were what when where whether which while who whom whose why will with would you your
yourself returns return tool b c d e f g h j k l m n o p q r s t v w x y z
"""
_STOP: Final = frozenset(_STOP_WORDS.split())
_MAX_DEPTH: Final = 4
"""Nesting of a tool's arguments in the index."""
_MAX_WORDS: Final = 400
"""Words of one field in the index."""


@cache
def _groups() -> tuple[str, ...]:
    """The groups of words with the same meaning."""
    text = Path(__file__).with_name("tool_words.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def _synonyms() -> dict[tuple[str, ...], dict[tuple[str, ...], float]]:
    """Synonyms by word or phrase, as stems with weights. Words after a bar are only related to those before it."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], float]] = {}
    for line in _groups():
        near, _, far = line.partition("|")
        members = [tuple(_query_words(each)) for each in near.split()]
        others = [tuple(_query_words(each)) for each in far.replace("|", " ").split()]
        for one in (*members, *others):
            known = found.setdefault(one, {})
            for another in members:
                weight = _SYNONYM if one in members else _RELATED
                known[another] = max(weight, known.get(another, 0.0))
            if one in members:
                for another in others:
                    known[another] = max(_RELATED, known.get(another, 0.0))
    return found


_SYNONYM: Final = 0.55
"""Weight of a synonym, relative to the word itself."""
_RELATED: Final = 0.3
_PREFIX: Final = 0.6
_NEAR: Final = 0.6
_MIN_PREFIX: Final = 4
_MIN_NEAR: Final = 5
_SIMILAR: Final = 0.82


@lru_cache(20_000)
def stem(word: str) -> str:
    """The stem of a lower-case English word; words of other languages are hardly changed."""
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for suffix in ("ing", "ed"):
        rest = word.removesuffix(suffix)
        if rest != word and len(rest) >= 3 and any(each in "aeiouy" for each in rest):
            word = rest[:-1] if rest[-1] == rest[-2] and rest[-1] not in "lsz" else rest
            break
    for suffix, least in (("ation", 4), ("ion", 4), ("ment", 4), ("er", 4), ("or", 4), ("ly", 4), ("able", 4)):
        if word.endswith(suffix) and len(word) - len(suffix) >= least:
            word = word[: -len(suffix)]
            if suffix == "ation":
                word += "at"
            break
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def words(text: str) -> list[str]:
    """The stems of a text's words, with names in camelCase and snake_case split, without stop words.

    A phrase that has its meaning by a stop word, such as `turn on`, follows its words as one more: `turn_on`.
    """
    return [word for found in _words_and_phrases(text) for word in found]


def _query_words(text: str) -> list[str]:
    """The stems of a query's words as in `words`, but a phrase takes the place of its words."""
    return [found[-1] for found in _words_and_phrases(text)]


def _words_and_phrases(text: str) -> Iterator[tuple[str, ...]]:
    """Each word, or the words of a phrase with a stop word and then the phrase."""
    found = _WORD.findall(_CAMEL_CASE.sub(" ", text).lower())
    known = _phrases()
    at = 0
    while at < len(found):
        begin = stem(found[at])
        for phrase in known.get(begin, ()):
            if tuple(map(stem, found[at : at + len(phrase)])) == phrase:
                own = found[at : at + len(phrase)]
                yield (*(stem(word) for word in own if word not in _STOP), "_".join(phrase))
                at += len(phrase)
                break
        else:
            if found[at] not in _STOP:
                yield (begin,)
            at += 1


@cache
def _phrases() -> dict[str, list[tuple[str, ...]]]:
    """The phrases of the groups that have a stop word, as stems, by the first; the longest come first."""
    written = {tuple(each.split("_")) for line in _groups() for each in line.replace("|", " ").split() if "_" in each}
    found: dict[str, list[tuple[str, ...]]] = {}
    for phrase in sorted((one for one in written if not _STOP.isdisjoint(one)), key=lambda one: (-len(one), one)):
        stems = tuple(map(stem, phrase))
        found.setdefault(stems[0], []).append(stems)
    return found


_Postings: TypeAlias = "Mapping[str, Mapping[int, float]]"
"""For each word the tools that contain it, with its weight in each tool."""
_NONE: Final[dict[int, float]] = {}
_WEIGHTS: Final = (3.0, 2.0, 1.0, 0.5, 0.25, 1.5, 0.1)
"""Weights of the fields: name, title, description, argument names, argument descriptions, server, its instructions."""
_LENGTHS: Final = (0.3, 0.3, 0.5, 0.7, 0.7, 0.0, 0.5)
"""The influence of the length of each field (BM25's `b`)."""
_SATURATION: Final = 1.5
"""BM25's `k1`."""


ServerTexts: TypeAlias = "Mapping[str, tuple[str, str]]"
"""The title and the instructions of each server."""
SEARCH: Final = "search_tools"
"""The name under which models see the search."""
QUERIES: Final = "One or more queries of a few words each, such as 'read file' or 'create github issue'."
MAX_FOUND: Final = 8
"""Maximum number of results of one search."""
_MAX_TITLE: Final = 60


class ToolSearch:
    """The tools that a model has to search for, and can then call like declared tools.

    Args:
        declared: Returns the current tools.
        servers: Returns the titles and instructions of their servers.
        index: Returns the index of a list of tools, which it caches.
        max_tools: Maximum tools in one request.
    """

    def __init__(
        self,
        declared: Callable[[], list[Declaration]],
        servers: Callable[[], ServerTexts],
        index: Callable[[list[Declaration], ServerTexts], ToolIndex],
        max_tools: int,
    ) -> None:
        self.declared = declared
        self.max_tools = max_tools
        self._servers = servers
        self._index = index

    def description(self) -> str:
        """The description of the search for a model, with the names of the servers."""
        return (
            f"Find tools by what they do; what is found can be called from then on. Servers: {self._shown_servers()}."
        )

    def no_match(self) -> str:
        """The text for a model whose search has found nothing."""
        return f"No tool matches. Search again in other words, or by the name of a server: {self._shown_servers()}."

    def _shown_servers(self) -> str:
        titles = {name: title for name, (title, _) in self._servers().items()}
        return ", ".join(
            f"{server} ({shortened(stripped(title), _MAX_TITLE)})" if (title := titles.get(server)) else server
            for server in dict.fromkeys(one.server for one in self.declared())
        )

    def find(self, queries: Sequence[str]) -> list[str]:
        """The names of the tools that match one of the queries best; thread-safe."""
        index = self._index(self.declared(), self._servers())
        found = [index.search(query, MAX_FOUND) for query in queries[:MAX_FOUND]]
        ranked = [name for names in zip_longest(*found) for name in names if name is not None]
        return list(dict.fromkeys(ranked))[:MAX_FOUND]


class ToolIndex:
    """An immutable index of tools.

    Args:
        tools: The declarations.
        servers: The titles and instructions of their servers.
    """

    def __init__(self, tools: Sequence[Declaration], servers: ServerTexts) -> None:
        self.names = [one.name for one in tools]
        known = {one.server: servers.get(one.server, ("", "")) for one in tools}
        texts = {name: (words(f"{name} {title}"), words(about)[:_MAX_WORDS]) for name, (title, about) in known.items()}
        fields = [_fields(one, texts[one.server]) for one in tools]
        count = max(len(tools), 1)
        means = [sum(len(one[field]) for one in fields) / count or 1.0 for field in range(len(_WEIGHTS))]
        self._postings: dict[str, dict[int, float]] = {}
        for number, one in enumerate(fields):
            weights: defaultdict[str, float] = defaultdict(float)
            for field, found in enumerate(one):
                norm = 1 - _LENGTHS[field] + _LENGTHS[field] * len(found) / means[field]
                for word, times in Counter(found).items():
                    weights[word] += _WEIGHTS[field] * min(times, 3) / norm
            for word, weight in weights.items():
                self._postings.setdefault(word, {})[number] = weight * (_SATURATION + 1) / (weight + _SATURATION)
        self._split_compounds()
        self._strong = {
            word: {number: weight for number, weight in found.items() if weight >= _STRONG}
            for word, found in self._postings.items()
        }
        self._servers = {word for own, _ in texts.values() for word in own}
        """The words of the servers' names and titles."""
        self._by_letter: dict[str, list[str]] = {}
        for word in self._postings:
            self._by_letter.setdefault(word[:1], []).append(word)

    def search(self, query: str, limit: int = 8) -> list[str]:
        """The names of the best matches, best first."""
        scores: defaultdict[int, float] = defaultdict(float)
        matched: defaultdict[int, float] = defaultdict(float)
        total = 0.0
        for concept in self._concepts(_query_words(query)[:_MAX_QUERY]):
            best: dict[int, float] = {}
            reached: set[int] = set()
            for terms, weight in concept.items():
                found = self._with_all(terms, self._postings if weight == 1.0 else self._strong)
                if weight >= _SYNONYM:
                    reached.update(found)
                for number, value in found.items():
                    if weight * value > best.get(number, 0.0):
                        best[number] = weight * value
            if not best:
                continue
            rarity = self._rarity(len(reached) or len(best)) * (_WEAK if next(iter(concept)) in _GENERAL else 1.0)
            total += rarity
            for number, value in best.items():
                scores[number] += rarity * value
                matched[number] += rarity * min(value, 1.0)
        ranked = {number: score * (matched[number] / total) ** _COVERAGE for number, score in scores.items()}
        best_first = nsmallest(limit, ranked, key=lambda number: (-ranked[number], number))
        return [self.names[number] for number in best_first]

    def _with_all(self, terms: tuple[str, ...], postings: _Postings) -> Mapping[int, float]:
        """The tools that contain all of these words, with the mean of the weights."""
        first, *others = (postings.get(term, _NONE) for term in terms)
        if not others:
            return first
        return {
            number: (weight + sum(one[number] for one in others)) / len(terms)
            for number, weight in first.items()
            if all(number in one for one in others)
        }

    def _concepts(self, query: list[str]) -> Iterator[dict[tuple[str, ...], float]]:
        """Each word or phrase of a query, with its synonyms and similar words as `{stems: weight}`."""
        synonyms = _synonyms()
        at = 0
        while at < len(query):
            for size in (3, 2, 1):
                phrase = tuple(query[at : at + size])
                if len(phrase) == size and (size == 1 or phrase in synonyms):
                    break
            found = {phrase: 1.0}
            for terms, weight in synonyms.get(phrase, {}).items():
                found[terms] = max(weight, found.get(terms, 0.0))
            if len(phrase) == 1:
                for term, weight in self._near(phrase[0]):
                    found[(term,)] = max(weight, found.get((term,), 0.0))
            joined = "".join(query[at : at + 2])
            if len(phrase) == 1 and at + 1 < len(query) and joined in self._postings:
                yield {(joined,): 1.0}
            yield found
            at += len(phrase)

    def _near(self, word: str) -> Iterator[tuple[str, float]]:
        """Words of the index that begin alike, or have a similar spelling if the word itself is unknown."""
        if len(word) < _MIN_PREFIX:
            return
        alike = self._by_letter.get(word[:1], ())
        for each in alike:
            if each in self._servers and word in self._postings:
                continue  # many tools would match by a name that only begins like the word
            if each != word and (each.startswith(word) or (len(each) > _MIN_PREFIX and word.startswith(each))):
                yield each, _PREFIX * min(len(each), len(word)) / max(len(each), len(word))
        if word not in self._postings and len(word) >= _MIN_NEAR:
            matcher = SequenceMatcher(b=word, autojunk=False)
            for each in alike:
                if abs(len(each) - len(word)) <= 2:
                    matcher.set_seq1(each)
                    if matcher.quick_ratio() >= _SIMILAR and matcher.ratio() >= _SIMILAR:
                        yield each, _NEAR

    def _rarity(self, count: int) -> float:
        return math.log(1 + (len(self.names) - count + 0.5) / (count + 0.5))

    def _split_compounds(self) -> None:
        """Index compounds, such as `worklog`, also under their parts."""
        for word in [*self._postings]:
            for at in range(3, len(word) - 2) if len(word) >= 7 else ():
                first, second = self._postings.get(stem(word[:at])), self._postings.get(word[at:])
                if first and second and min(len(first), len(second)) >= 2:
                    for number, weight in self._postings[word].items():
                        for part in (first, second):
                            part[number] = max(part.get(number, 0.0), weight * _PART)


_GENERAL_VERBS: Final = "check get show give find make see look list tell put have"
_GENERAL: Final = frozenset((stem(each),) for each in _GENERAL_VERBS.split())
"""Verbs that carry little information in a query."""
_WEAK: Final = 0.6
"""Weight of such a verb in a query."""
_STRONG: Final = 0.8
"""Minimum weight of a tool's word to be matched by synonyms: words of its name, title, description or server."""
_PART: Final = 0.6
"""Weight of a compound's part."""
_COVERAGE: Final = 0.5
"""The influence of the share of a query's words that a tool matches."""
_MAX_QUERY: Final = 40


def _fields(tool: Declaration, server: tuple[list[str], list[str]]) -> tuple[list[str], ...]:
    names: list[str] = []
    notes: list[str] = []
    for name, note in _arguments(tool.schema, 0):
        names.append(name)
        notes.append(note)
    text = tool.description.removeprefix(f"[{tool.server}] ")
    return (
        words(tool.tool),
        words(tool.title),
        words(text)[:_MAX_WORDS],
        words(" ".join(names))[:_MAX_WORDS],
        words(" ".join(notes))[:_MAX_WORDS],
        *server,
    )


def _arguments(schema: Any, depth: int) -> Iterator[tuple[str, str]]:
    """The names of the arguments with their descriptions and values."""
    if not is_object(schema) or depth > _MAX_DEPTH:
        return
    members = schema.get("properties")
    for name, member in members.items() if is_object(members) else ():
        note = member.get("description") if is_object(member) else ""
        values = member.get("enum") if is_object(member) else ()
        listed: Iterable[Any] = values if is_array(values) else ()
        yield name, f"{note or ''} {' '.join(each for each in listed if isinstance(each, str))}"
        yield from _arguments(member, depth + 1)
    yield from _arguments(schema.get("items"), depth + 1)
    for branch in schema.get("anyOf", ()) if is_array(schema.get("anyOf")) else ():
        yield from _arguments(branch, depth + 1)
