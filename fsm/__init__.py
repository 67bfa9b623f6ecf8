"""What may come next: constraints as byte automata, token masks and forced text. Knows no model and no tensors."""

from .compiler import Compiler, Limits
from .constraint import Constraint
from .cursor import Cursor
from .flat_automaton import FlatAutomaton, flatten
from .guess import Guess
from .vocabulary.vocabulary import Vocabulary

__all__ = ["Compiler", "Constraint", "Cursor", "FlatAutomaton", "Guess", "Limits", "Vocabulary", "flatten"]
