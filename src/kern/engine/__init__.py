"""Generate text with an executable: sequences, decoding, speculation, scores."""

from kern.engine.batch import Batch
from kern.engine.conversation import Conversation
from kern.engine.generation import Generation, Token
from kern.engine.generator import Generator
from kern.engine.model import TextModel, open_model
from kern.engine.scoring import Score, score

__all__ = ["Batch", "Conversation", "Generation", "Generator", "Score", "TextModel", "Token", "open_model", "score"]
