"""What may come next: constraints as byte automata, token masks and forced text. Knows no model and no tensors."""

if "." not in __name__:  # Python was started in the repository
    raise ImportError("fsm is a part of the package phloem: import phloem.fsm")

from .compiler import Compiler, Limits
from .constraint import Constraint
from .cursor import Cursor
from .flat_automaton import FlatAutomaton, flatten
from .guess import Guess
from .vocabulary.vocabulary import Vocabulary

__all__ = ["Compiler", "Constraint", "Cursor", "FlatAutomaton", "Guess", "Limits", "Vocabulary", "flatten"]
