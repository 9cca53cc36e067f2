"""Fifty prompts that the trained draft of SmolLM2 has not seen: other topics, phrasings and words than its training's.

They were drawn with their own seed from what `tools/draft_training/prompts.py` holds out, less what the draft's
card was measured on: half are chats, three in ten openings, and the rest what the target began by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kern.text import Tokenizer, chat_prompt

Kind = Literal["chat", "opening", "free"]


@dataclass(frozen=True)
class Prompt:
    """A prompt's text, which for a chat is what the user says."""

    kind: Kind
    text: str

    def ids(self, tokenizer: Tokenizer) -> Sequence[int]:
        """Its ids, a chat's in the model's template."""
        if self.kind == "chat":
            return chat_prompt(tokenizer, [{"role": "user", "content": self.text}])
        return tokenizer.encode(self.text)


_CHATS: Final = (
    "What should everyone know about the Vikings, with one example?",
    "What should everyone know about soil, within a few sentences?",
    "Please write a blog post on the skeleton using bullet points.",
    "Why does tides matter? Say it within a few sentences.",
    "What should everyone know about the Vikings, within a few sentences?",
    "Compare the skeleton with something similar using bullet points.",
    "Please write a blog post on origami with one example.",
    "Please write a blog post on origami in plain language.",
    "Why does the telephone matter? Say it for beginners.",
    "What should everyone know about the Amazon river, with one example?",
    "I have to give a talk on the Apollo program. Draft it for beginners.",
    "Why does kites matter? Say it using bullet points.",
    "Please write a blog post on the Vikings in plain language.",
    "I have to give a talk on satellites. Draft it in plain language.",
    "Can you help me understand kites? I prefer answers for beginners.",
    "Compare penguins with something similar using bullet points.",
    "Why does public speaking matter? Say it using bullet points.",
    "Can you help me understand the Amazon river? I prefer answers with one example.",
    "Can you help me understand magnets? I prefer answers in plain language.",
    "Can you help me understand swimming? I prefer answers in plain language.",
    "I have to give a talk on salt. Draft it within a few sentences.",
    "What should everyone know about the Vikings, using bullet points?",
    "Why does origami matter? Say it using bullet points.",
    "Why does binary search matter? Say it within a few sentences.",
    "Please write a blog post on swimming in plain language.",
)
_OPENINGS: Final = (
    "Everyone in the village knew about public speaking, but",
    "It is often said that public speaking",
    "The three most important things about poetry are",
    "The three most important things about the telephone are",
    "Everyone in the village knew about elections, but",
    "Abstract. We review what is known about poetry.",
    "Last summer I became interested in lighthouses.",
    "It is often said that elephants",
    "The three most important things about binary search are",
    "A beginner's guide to tides\n\n",
    "Last summer I became interested in poetry.",
    "Everyone in the village knew about swimming, but",
    "A beginner's guide to magnets\n\n",
    "It is often said that magnets",
    "Abstract. We review what is known about the Black Death.",
)
_FREE: Final = (
    (
        "Hand-based approach to optimize AI decision-making.\n\nHumans can assist in planning and decision-making "
        "by providing data and expertise to AI. By engaging in dynamic interactions and helping the AI to analyze "
        "complex data sets, humans offer invaluable perspectives and insights. This fundamental partnership has "
        "seen"
    ),
    (
        "All example of fiction consisting of no plots?\nMaybe, a story of this kind exists. The peculiarity lies "
        "under the boot of history"
    ),
    (
        "Output-with-The- defence, Ifi, Kadavu is no more than an elaborate super-adjective, concocted by the "
        "breve-tween Ani-ma-match, Group-Shafta-ka-sáb-dhe-"
    ),
    (
        "Luck_data(), multiply_by_non_zero);\n    DEFAULT_COLUMN = [[num_rows - 3]];\n\n    return;\n}\n\nconst "
        "double* add_num_col_scalar(double* col"
    ),
    (
        "Mobile-referenced events should be made available online, but those that have not yet taken to social "
        "media should drop the timestamp verification code to the point of time.\n\nDoha Day, March "
    ),
    (
        "Japanese_following_altrui_final[0] == [0, 0, 1]\n    assert not sources[4][total1][binary_str_core]\n"
        "capsErr([IS_OBJECT_COMMON_IBM_ISJR_"
    ),
    (
        "Eating\ndate: 10/4/2017 04:12:00 EDT\n-go: ITERNAIES-\nMySQL::Tables::DataFixtures::Load'created': "
        "java.util.HashMap (User)\n-x"
    ),
    (
        "Credit-labeled protein Kit et al. release efforts to fight anaerobic bacteria, which can outcompete and "
        "outnumber free-living bacteria, rendering them ineffective for targeting bioplastics.\n\nUBAR supports"
    ),
    (
        'Ro-Cap is a regular roll of the dice named after the French "Cap Calomel", which represents the current '
        "timeline in the Era of Choice. When a player"
    ),
    "Publication-2003:07 20.17rdOS, v2.3.1",
)

PROMPTS: Final = (
    *(Prompt("chat", text) for text in _CHATS),
    *(Prompt("opening", text) for text in _OPENINGS),
    *(Prompt("free", text) for text in _FREE),
)
FEW: Final = (*PROMPTS[:6], *PROMPTS[25:29], *PROMPTS[40:42])
"""The first of each kind, in the kinds' shares."""
