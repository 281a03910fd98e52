"""Pairs of English sentences that say the same in other words, from a small grammar, and a reader for BERT's words.

What a pair is about is drawn first: who, what and where. Two sentences are made of it by different patterns and
with other words of the same meaning: no first sentence has the words of a second one for the same thing, so the partner
of a sentence among all of them is found by meaning.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import xcompile
from bench import corpus
from bench.sets.task import Task

PEOPLE = (
    ("the doctor", "the physician"),
    ("my boss", "my manager"),
    ("a child", "a kid"),
    ("the teacher", "the instructor"),
    ("our neighbour", "the man next door"),
    ("the lawyer", "the attorney"),
    ("a police officer", "a cop"),
    ("the pilot", "the captain of the plane"),
    ("her husband", "the man she married"),
    ("the farmer", "the man who owns the farm"),
    ("a student", "a young woman at the university"),
    ("the singer", "the vocalist"),
    ("the chef", "the cook"),
    ("my grandmother", "my granny"),
    ("the mayor", "the head of the city"),
    ("a soldier", "a man in the army"),
    ("the dentist", "the woman who looks after teeth"),
    ("my sister", "the other daughter of my parents"),
    ("an old king", "the ruler of the kingdom"),
    ("the bus driver", "the man who drives the bus"),
    ("a famous actor", "a well known film star"),
    ("the priest", "the man of the church"),
    ("the thief", "the burglar"),
    ("our cleaner", "the person who cleans our rooms"),
    ("a tourist", "a visitor from abroad"),
)
ACTS = (
    ("bought a new car", "purchased an automobile", "got a new vehicle"),
    ("is repairing the roof", "is fixing the roof", "works on the broken roof"),
    ("cooked a big dinner", "made a large meal", "prepared supper for everyone"),
    ("lost the keys", "cannot find the keys", "mislaid the keys"),
    ("wrote a long letter", "sent a lengthy letter", "composed a letter of many pages"),
    ("is learning to swim", "takes swimming lessons", "wants to be able to swim"),
    ("sold the old house", "found a buyer for the old house", "no longer owns the old house"),
    ("planted some trees", "put young trees into the ground", "has planted trees"),
    ("missed the last train", "was too late for the last train", "did not catch the train"),
    ("plays the violin", "is making music on a violin", "practises the violin"),
    ("broke a leg", "has a broken leg", "fractured a leg"),
    ("won the race", "came first in the race", "was the fastest runner"),
    (
        "painted the kitchen",
        "gave the kitchen a new colour",
        "put fresh paint on the kitchen walls",
    ),
    ("is afraid of dogs", "fears dogs", "is scared of dogs"),
    ("read a book about space", "finished a book on astronomy", "studied a book about the stars"),
    ("drank too much coffee", "had too many cups of coffee", "took more coffee than is good"),
    ("took pictures of birds", "photographed birds", "made photos of some birds"),
    ("complained about the noise", "was annoyed by the noise", "said that it was too loud"),
    ("forgot the birthday", "did not remember the birthday", "failed to think of the birthday"),
    ("borrowed some money", "took a loan", "got a credit"),
    ("caught a big fish", "pulled a large fish out of the water", "went fishing with success"),
    ("had a bad dream", "woke up from a nightmare", "dreamt of something terrible"),
    ("signed the contract", "put a signature under the agreement", "agreed to the contract"),
    ("built a wooden boat", "made a boat out of wood", "constructed a boat from planks"),
    ("cut the grass", "mowed the lawn", "made the lawn short"),
    ("is allergic to nuts", "cannot eat nuts", "becomes ill from eating nuts"),
    ("watched a scary film", "saw a horror movie", "looked at a film full of ghosts"),
    ("repaired the bicycle", "fixed the bike", "made the bike work again"),
    ("got married", "had a wedding", "celebrated a marriage"),
    ("lost a lot of weight", "became much thinner", "is much slimmer than before"),
    ("called the fire brigade", "phoned the firefighters", "alerted the fire department"),
    ("speaks three languages", "is fluent in three tongues", "can talk in several languages"),
    ("quit smoking", "gave up cigarettes", "stopped using tobacco"),
    ("baked some bread", "made a loaf in the oven", "put fresh bread on the table"),
    ("feeds the cats", "gives food to the cats", "brings the cats something to eat"),
    ("fell asleep early", "went to sleep before it was late", "was in bed and sleeping soon"),
    ("paid the taxes", "sent money to the tax office", "settled the tax bill"),
    ("lost the football match", "was beaten at soccer", "did not win the soccer game"),
    ("found a gold ring", "came across a golden ring", "discovered a piece of jewellery"),
    ("counted the votes", "checked the result of the election", "added up the ballots"),
)
PLACES = (
    ("in paris", "in the capital of france"),
    ("near the harbour", "close to the port"),
    ("at the office", "at work"),
    ("in a small village", "in a tiny place in the country"),
    ("on the beach", "by the sea"),
    ("in the mountains", "up in the hills"),
    ("at the hospital", "in the clinic"),
    ("in the garden", "in the yard behind the house"),
)


class Pair(NamedTuple):
    """Two sentences that mean the same."""

    first: str
    second: str


def pairs(count: int, seed: int) -> list[Pair]:
    """Pairs of sentences about different things.

    Args:
        count: at most 8,000.
        seed: of the choice; sets of different seeds share a part of what they are about.
    """
    random = np.random.default_rng(seed)
    sizes = (len(PEOPLE), len(ACTS), len(PLACES))
    chosen = random.permutation(int(np.prod(sizes)))[:count]
    return [_pair(random, *np.unravel_index(number, sizes)) for number in chosen]


def _pair(random: np.random.Generator, who: int, act: int, place: int) -> Pair:
    persons, places = PEOPLE[who], PLACES[place]
    other = ACTS[act][int(random.integers(1, len(ACTS[act])))]
    first = f"{places[0]} {persons[0]} {ACTS[act][0]}."
    second = f"{persons[1]} {other} {places[1]}."
    return Pair(first, second)


@cache
def _words() -> dict[str, int]:
    """The number of each word and part of a word; what begins a word has a mark in front."""
    known = json.loads(corpus.data("bert-words.json").read_text(encoding="utf-8"))
    return {word: number for number, word in enumerate(known)}


def token_ids(sentence: str) -> list[int]:
    """The numbers of a sentence's parts, between those of its start and its end: greedy, longest part first."""
    known = _words()
    plain = unicodedata.normalize("NFD", sentence.lower())
    ids = [known["[CLS]"]]
    for word in re.findall(r"\w+|[^\w\s]", plain):
        rest, mark, found = word, "▁", list[int]()
        while rest:
            for end in range(len(rest), 0, -1):
                if mark + rest[:end] in known:
                    found.append(known[mark + rest[:end]])
                    rest, mark = rest[end:], ""
                    break
            else:
                found, rest = [known["[UNK]"]], ""
        ids += found
    return [*ids, known["[SEP]"]]


_OUTPUT = "461"
"""The embedding of the whole sentence."""
_COUNT, _CALIBRATION = 1000, 100


def _input(sentence: str) -> dict[str, np.ndarray]:
    ids = np.array([token_ids(sentence)], np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def embeddings(model: Any, sentences: Sequence[str]) -> np.ndarray:
    """The unit vectors of sentences: float32 [n, 384]."""
    found = np.concatenate([model.run(_input(sentence))[_OUTPUT] for sentence in sentences])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def _recall(first: np.ndarray, second: np.ndarray) -> float:
    """In percent, how often the nearest of the second sentences is the partner of the first."""
    return 100 * float(((first @ second.T).argmax(axis=1) == np.arange(len(first))).mean())


@cache
def _of_float() -> tuple[np.ndarray, np.ndarray]:
    """The float model's embeddings of the pairs to test with."""
    model = xcompile.compile(corpus.model("minilm"))
    made = pairs(_COUNT, 2)
    return embeddings(model, [p.first for p in made]), embeddings(model, [p.second for p in made])


def _scores(model: Any) -> dict[str, float]:
    made = pairs(_COUNT, 2)
    first = embeddings(model, [p.first for p in made])
    second = embeddings(model, [p.second for p in made])
    cosines = np.concatenate(
        [(a * b).sum(axis=1) for a, b in zip((first, second), _of_float(), strict=True)]
    )
    return {
        "recall@1": _recall(first, second),
        "mean cosine": float(cosines.mean()),
        "least cosine": float(cosines.min()),
    }


def _choice(model: Any) -> float:
    made = pairs(_COUNT, 1)
    return _recall(
        embeddings(model, [p.first for p in made]), embeddings(model, [p.second for p in made])
    )


def _samples() -> Iterator[dict[str, np.ndarray]]:
    return (_input(sentence) for pair in pairs(_CALIBRATION, 0) for sentence in pair)


def task() -> Task:
    """The set."""
    return Task("sentence-pairs", corpus.model("minilm"), _samples, _choice, _scores, _COUNT)
