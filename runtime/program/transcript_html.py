"""A transcript as HTML for notebooks: its tokens in colours that say where each came from.

    cached     the cache had it when the first request that needed it was admitted
    computed   the first request that needed it computed it
    jumped     the model's, foreseen and verified: it needed no sampling step of its own
    sampled    the model's
    chosen     of the choice that `select` made

Tokens that no request has needed yet are plain, as are those before a `select` and before what a joined fork has
written. Where a backend does not say which tokens it jumped, they count as sampled. Cost: O(tokens).
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterator
from html import escape

from .chat_format import TextTokenizer
from .transcript import Transcript

# half transparent, for light and dark pages
COLOURS = {
    "cached": "rgba(80,140,220,.35)",
    "computed": "rgba(150,150,150,.30)",
    "jumped": "rgba(60,180,90,.45)",
    "sampled": "rgba(240,160,40,.40)",
    "chosen": "rgba(180,90,200,.35)",
}


def as_html(transcript: Transcript, tokenizer: TextTokenizer) -> str:
    """The text in one block, then the colours with their counts of tokens."""
    token_ids = transcript.token_ids().tolist()
    tokenizer.decode(token_ids)  # a server's asks for all it does not know at once, not for one after the other
    kinds = origins(transcript, len(token_ids))
    texts = token_texts(tokenizer, token_ids)
    parts = []
    for kind, pairs in itertools.groupby(zip(kinds, texts, strict=True), key=lambda pair: pair[0]):
        parts.append(_mark(kind, escape("".join(text for _, text in pairs))))
    legend = " ".join(f"{_mark(kind, kind)} {kinds.count(kind)}" for kind in COLOURS if kind in kinds)
    return (
        f'<pre style="white-space:pre-wrap;line-height:1.6">{"".join(parts)}</pre>'
        f'<div style="font-size:smaller">tokens: {legend}</div>'
    )


def origins(transcript: Transcript, num_tokens: int) -> list[str]:
    """For each token a key of `COLOURS`, or "" for none."""
    kinds: list[str] = []
    for written in transcript.written:
        cached = written.num_cached
        for position in range(len(kinds), written.start):
            kinds.append("" if cached is None else "cached" if position < cached else "computed")
        for position in range(len(kinds), written.end):
            kind = "jumped" if position in written.jumped else "sampled"
            kinds.append("chosen" if written.is_chosen else kind)
    return kinds + [""] * (num_tokens - len(kinds))


def token_texts(tokenizer: TextTokenizer, token_ids: list[int]) -> Iterator[str]:
    """The text of each token; a character that several share is the last one's."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for token_id in token_ids:
        data = tokenizer.token_bytes(token_id)
        yield decoder.decode(data) if data else tokenizer.token_text(token_id)


def _mark(kind: str, html: str) -> str:
    return f'<span style="background:{COLOURS[kind]}" title="{kind}">{html}</span>' if kind else html
