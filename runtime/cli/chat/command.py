"""The command: its options, and whether a person or a pipe talks."""

from __future__ import annotations

import sys
from typing import Annotated

from ..engine_options import Settings, load_engine, with_engine_options
from ..options import ModelArgument, option
from ..sampling import MaxTokens, Seed, Temperature, TopP, UseAdapter
from ..terminal import takes_escapes


@with_engine_options
def chat(
    settings: Settings,
    model: ModelArgument = "nano",
    system: Annotated[str | None, option("--system", "-s", help="The system prompt.")] = None,
    stats: Annotated[bool, option("--stats/--no-stats", help="Print token counts after each answer.")] = True,
    use_adapter: UseAdapter = None,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = None,
) -> None:
    """Talks to a model; /help says what can be done besides. Lines may also come from a pipe: one line, one turn."""
    from ...request import SamplingParams
    from .commands import lines, talk
    from .conversation import Conversation
    from .session import Session

    sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    with load_engine(model, settings) as engine:
        conversation = Conversation(engine, sampling, system, use_adapter)
        if not (sys.stdin.isatty() and takes_escapes(sys.stdout)):
            from .plain_transcript import PlainTranscript

            talk(Session(conversation, PlainTranscript(), model, stats), lines())
            return
        from .input_line import InputLine
        from .transcript import Transcript

        session = Session(conversation, Transcript(), model, stats)
        talk(session, InputLine(session).lines())
