"""Fields of other servers that would change the answer and that this one does not know.

Unknown fields are ignored, as they are elsewhere: most only say which user asks, or what for. These say what the answer
is to be: a request that relies on one would get another answer than the one that it asked for, without notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

# what of each is as good as leaving it out
HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "chat_template": (),
    "custom_logit_processor": (),
    "documents": ([],),
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "early_stopping": (False,),
    "enable_thinking": (),
    "grammar": ("",),
    "include_reasoning": (True,),
    "length_penalty": (1, 0),
    "logits_processors": ([],),
    "lora_path": (),
    "max_new_tokens": (),
    "mirostat": (0,),
    "prompt_logprobs": (),
    "return_hidden_states": (False,),
    "separate_reasoning": (True,),
    "skip_special_tokens": (True,),
    "stop_regex": ("", []),
    "tfs_z": (1,),
    "top_a": (0,),
    "truncate_prompt_tokens": (),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
    "xtc_probability": (0,),
}
INSTEAD: Mapping[str, str] = {
    "chat_template": "start the server with the model's own, and use 'chat_template_kwargs'",
    "enable_thinking": "use 'chat_template_kwargs': {\"enable_thinking\": …}",
    "grammar": "use 'ebnf'",
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
