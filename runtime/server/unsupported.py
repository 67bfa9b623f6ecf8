"""Fields of other servers that would change the answer and that this one does not know.

Unknown fields are ignored, as they are elsewhere: most only say who asks, or what for. These say what the answer is to
be, so a request that leans on one would get another answer than the one that it asked for, and would never be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

# what of each is as good as leaving it out
HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "custom_logit_processor": (),
    "documents": ([],),
    "early_stopping": (False,),
    "length_penalty": (1, 0),
    "logits_processors": ([],),
    "lora_path": (),
    "max_new_tokens": (),
    "prompt_logprobs": (),
    "return_hidden_states": (False,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "stop_regex": ("", []),
    "thinking_token_budget": (),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
INSTEAD: Mapping[str, str] = {
    "max_new_tokens": "use 'max_tokens'",
    "prompt_logprobs": "use 'echo' and 'logprobs' of /v1/completions",
    "stop_regex": "use 'stop', or 'regex' for the whole answer",
    "lora_path": "serve the merged model",
}


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raises PydanticCustomError: one of the fields asks for something."""
    for name in HARMLESS.keys() & body.keys():
        value = body[name]
        if value is not None and value not in HARMLESS[name]:
            text = f"'{name}' is not supported; {INSTEAD.get(name, 'leave it out')}"
            raise PydanticCustomError(name, "{text}", {"text": text})
