"""The constraint engine for other engines: vocabularies of any tokenizer, masks in a caller's memory; transformers,
outlines, SGLang and vLLM, each in a module of its own.

`fsm` knows bytes and token ids; here it meets the libraries that people use. Nothing here imports phloem's engine, and
a library is imported only by the function that is given one of its objects, or by the module named after it.
"""

if "." not in __name__:  # Python was started in the repository
    raise ImportError("faces is a part of the package phloem: import phloem.faces")

from .matcher import GrammarMatcher, allocate_token_bitmask, fill_bitmasks
from .vocabulary import Vocabulary

__all__ = ["GrammarMatcher", "Vocabulary", "allocate_token_bitmask", "fill_bitmasks"]
