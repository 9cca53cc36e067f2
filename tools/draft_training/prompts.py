"""Prompts from a grammar: topics, tasks and phrasings, those held out apart from those trained on.

No data set is needed: the target's own completions are the data, and their topics hardly matter as long as there are
many.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from draft_training.generation import Request
from kern.manifest.errors import KernError
from kern.text.chat import Message, chat_prompt
from kern.text.tokenizer import Tokenizer


class PromptError(KernError):
    """Prompts cannot be made."""

    code = "prompts"
    exit_code = 2


@dataclass(frozen=True)
class Grammar:
    """The parts of prompts: `chats` hold `{topic}` and `{manner}`, `openings` `{topic}`, many also `{other}`."""

    topics: tuple[str, ...]
    chats: tuple[str, ...]
    manners: tuple[str, ...]
    openings: tuple[str, ...]


TRAINING: Final = Grammar(
    topics=(
        "the water cycle", "volcanoes", "the history of bread", "bicycles", "honey bees", "the French Revolution",
        "prime numbers", "photosynthesis", "the Roman Empire", "jazz music", "electric motors", "the human heart",
        "glaciers", "chess", "the stock market", "democracy", "vaccines", "black holes", "the Silk Road", "tea",
        "machine learning", "sorting algorithms", "public libraries", "earthquakes", "whales", "the printing press",
        "solar panels", "gardening", "sleep", "the Olympic Games", "bridges", "rain forests", "the alphabet",
        "money", "antibiotics", "steam engines", "the moon", "coral reefs", "novels", "dogs", "fractions", "gravity",
        "the Renaissance", "cooking pasta", "running a marathon", "learning a language", "the nervous system",
        "climate change", "computer networks", "databases", "the periodic table", "ancient Egypt", "sailing",
        "painting with watercolours", "job interviews", "time management", "healthy breakfasts", "road safety",
        "the immune system", "wind turbines", "mountain climbing", "the violin", "recycling", "cheese", "trains",
        "the Pacific Ocean", "desert animals", "the theory of evolution", "probability", "insurance", "cities",
        "Python dictionaries", "the brain", "friendship", "storytelling", "space telescopes", "kindergarten", "glass",
        "the Great Wall of China", "rivers", "birds of prey", "the industrial revolution", "dreams", "architecture",
        "basketball", "email", "the digestive system", "lightning", "mushrooms", "negotiation", "museums", "coffee",
    ),
    chats=(
        "Explain {topic} {manner}.", "What is important about {topic}? Answer {manner}.",
        "Write a short essay about {topic} {manner}.", "Give me five facts about {topic}, {manner}.",
        "Tell me a story about {topic} {manner}.", "List the advantages and disadvantages of {topic} {manner}.",
        "How would you teach {topic} {manner}?", "Summarize what is known about {topic} {manner}.",
        "Write a poem about {topic} {manner}.", "What are common mistakes people make with {topic}? Reply {manner}.",
        "I want to know more about {topic}. Please answer {manner}.", "Describe {topic} {manner}.",
        "Write a dialogue between two friends about {topic}, {manner}.",
        "Write three quiz questions with answers about {topic} {manner}.",
        "Write a Python function that has something to do with {topic}, and comment it {manner}.",
        "Compose an email that invites people to a talk about {topic} {manner}.",
        "What is the history of {topic}? Tell it {manner}.", "Make a plan for a week of studying {topic} {manner}.",
    ),
    manners=(
        "for a child", "in simple words", "in one paragraph", "with examples", "step by step", "for an expert",
        "as a numbered list", "in a friendly tone", "in a formal tone", "as briefly as you can", "in great detail",
        "for a newspaper",
    ),
    openings=(
        "The most surprising thing about {topic} is", "{topic} has changed over the years, and so has {other}.",
        "When people talk about {topic}, they often", "An introduction to {topic} and {other}:\n\n", "# {topic}\n\n",
        "Ten questions about {topic} and {other}\n\n1.", "In this article we will look at {topic} and at {other}.",
        "My grandmother knew a lot about {topic}, but little about {other}.", "The history of {topic} began",
        "Scientists who study {topic} have found that", "Chapter 1: {topic}\n\nChapter 2: {other}\n\n",
        "There are three reasons why {topic} matters more than {other}.", "Q: What is {topic}?\nA:",
        "Lesson plan: {topic}\n\nHomework: {other}\n\nObjectives:\n", "def main():\n    # A program about {topic}\n",
        "The teacher asked the class about {topic}, then about {other}, and", "{topic}, {other},",
    ),
)  # fmt: skip

HELD_OUT: Final = Grammar(
    topics=(
        "lighthouses", "the Vikings", "compound interest", "kites", "tides", "penguins", "the telephone",
        "linear equations", "the Amazon river", "origami", "the skeleton", "binary search", "public speaking",
        "the Apollo program", "soil", "elections", "maple syrup", "elephants", "magnets", "the Black Death",
        "swimming", "poetry", "satellites", "salt",
    ),
    chats=(
        "Can you help me understand {topic}? I prefer answers {manner}.", "Why does {topic} matter? Say it {manner}.",
        "Please write a blog post on {topic} {manner}.", "What should everyone know about {topic}, {manner}?",
        "Compare {topic} with something similar {manner}.", "I have to give a talk on {topic}. Draft it {manner}.",
    ),
    manners=("in plain language", "using bullet points", "with one example", "within a few sentences", "for beginners"),
    openings=(
        "The three most important things about {topic} are", "It is often said that {topic}",
        "A beginner's guide to {topic}\n\n", "Last summer I became interested in {topic}.",
        "Abstract. We review what is known about {topic}.", "Everyone in the village knew about {topic}, but",
    ),
)  # fmt: skip

_CHAT, _OPENING, _FREE = "chat", "opening", "free"
_SHARES: Final = ((_CHAT, 0.5), (_OPENING, 0.3), (_FREE, 0.2))
_LOW_TEMPERATURE: Final = 0.6
_GREEDY_SHARE: Final = 0.6
"""The share of training texts: greedy ones are measured, and the others add number and variety."""
_FREE_TOKENS: Final = (16, 64)
_TRIES: Final = 50
"""Draws in a row for each prompt found, none of them new, before the grammar counts as exhausted."""
_WORD: Final = re.compile(r"[A-Z][a-z]{1,11}\Z")


def training_requests(tokenizer: Tokenizer, count: int, seed: int) -> list[Request]:
    """`count` different prompts, greedy and at a low temperature. Raises PromptError, ChatError and NoTokenizer."""
    random_ = random.Random(f"training {seed}")
    return [
        Request(request.kind, request.ids, _temperature(random_), request.sampled)
        for request in _take(tokenizer, TRAINING, count, random_)
    ]


def held_out_requests(tokenizer: Tokenizer, count: int, seed: int) -> list[Request]:
    """`count` different prompts, all greedy, of topics and phrasings that no training prompt has.

    Texts that the target begins itself differ by their seeds and by their first words.
    """
    return _take(tokenizer, HELD_OUT, count, random.Random(f"held out {seed}"))


def _temperature(random_: random.Random) -> float:
    return 0.0 if random_.random() < _GREEDY_SHARE else _LOW_TEMPERATURE


def _take(tokenizer: Tokenizer, grammar: Grammar, count: int, random_: random.Random) -> list[Request]:
    """Different requests, in the kinds' shares."""
    if not tokenizer.has_vocabulary:
        raise PromptError("the checkpoint has no tokenizer, so no prompt can be made", "give one that has one")
    words = _words(tokenizer, held_out=grammar is HELD_OUT)
    if not words:
        raise PromptError("the tokenizer has too few words that are one token", "prompts are made of English words")
    found: list[_Prompt] = []
    for kind, share in _SHARES:
        wanted = round(count * share) if kind != _FREE else count - len(found)
        different: dict[_Prompt, None] = {}
        vain = 0
        while len(different) < wanted and vain < _TRIES * (1 + len(different)):
            before = len(different)
            different[_draw(grammar, kind, words, random_)] = None
            vain = vain + 1 if len(different) == before else 0
        if len(different) < wanted:
            raise PromptError(f"the grammar has fewer than {wanted} different prompts of kind {kind}", "ask for fewer")
        found += different
    random_.shuffle(found)
    return [Request(each.kind, tuple(_ids(tokenizer, each)), 0.0, each.sampled) for each in found]


@dataclass(frozen=True)
class _Prompt:
    """A prompt before it is encoded."""

    kind: str
    text: str
    sampled: int = 0


def _draw(grammar: Grammar, kind: str, words: Sequence[str], random_: random.Random) -> _Prompt:
    topic, manner = random_.choice(grammar.topics), random_.choice(grammar.manners)
    if kind == _CHAT:
        return _Prompt(kind, random_.choice(grammar.chats).format(topic=topic, manner=manner))
    if kind == _OPENING:
        text = random_.choice(grammar.openings).format(topic=topic, other=random_.choice(grammar.topics))
        return _Prompt(kind, text[0].upper() + text[1:])
    return _Prompt(kind, random_.choice(words), random_.randint(*_FREE_TOKENS))


def _ids(tokenizer: Tokenizer, prompt: _Prompt) -> list[int]:
    if prompt.kind == _CHAT:
        return chat_prompt(tokenizer, [Message(role="user", content=prompt.text)])
    return tokenizer.encode(prompt.text)


def _words(tokenizer: Tokenizer, held_out: bool) -> list[str]:
    """Capitalised words that are one token; each fourth is held out."""
    texts = (tokenizer.decode([id]) for id in range(tokenizer.settings.vocabulary))
    words = sorted({text for text in texts if _WORD.match(text)})
    return [word for place, word in enumerate(words) if (place % 4 == 0) == held_out]
