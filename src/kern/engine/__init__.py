"""Generate text with an executable: sequences, decoding, speculation, scores."""

from kern.engine.conversation import Conversation
from kern.engine.generator import Generation, Generator, Token
from kern.engine.model import TextModel, open_model
from kern.engine.scoring import Score, score

__all__ = ["Conversation", "Generation", "Generator", "Score", "TextModel", "Token", "open_model", "score"]
