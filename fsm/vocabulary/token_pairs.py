"""Which tokens a tokeniser may write next to each other, found out by asking it.

A tokeniser that merges pairs by priority (BPE), or looks for the likeliest cut (unigram), and cuts nothing up
beforehand, is local: if it writes ... a b ... anywhere, it writes a b for the two alone. For where it cuts before a
and after b, no merge ever crosses those places (no better cut crosses them), and all that happened between them
happens again. So a pair that it does not write for the two alone occurs in no text at all.

Also held possible: a pair whose bytes are no whole characters, since the tokeniser cannot be asked about it; and one
that is written in the other order (as a aa for aaa), since for a likeliest cut both are equally likely and either may
be chosen. Different tokens of exactly equal likelihood are assumed not to be such pairs.

Answers are kept, at most MAX_KEPT of them. Costs one call of the tokeniser for each pair, some microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..bounded_map import BoundedMap

MAX_KEPT = 50_000


class TokenPairs:
    """Answers for one tokeniser.

    Args:
        tokens: the bytes of each id; smallest: the smallest id of each byte string.
    """

    def __init__(
        self, tokens: Sequence[bytes], smallest: Mapping[bytes, int], encode: Callable[[str], list[int]]
    ) -> None:
        self._tokens = tokens
        self._smallest = smallest
        self._encode = encode
        self._ids: BoundedMap[bytes, int] = BoundedMap(MAX_KEPT)
        self._known: BoundedMap[tuple[bytes, bytes], bool] = BoundedMap(MAX_KEPT)

    def is_possible(self, first: bytes, second: bytes) -> bool:
        """Whether some text may hold these two tokens in this order."""
        key = (first, second)
        known = self._known.get(key)
        if known is None:
            ids = self.written(first + second)
            known = ids is None or [self._tokens[t] for t in ids] in ([first, second], [second, first])
            self._known.keep(key, known)
        return known

    def id_of(self, token: bytes) -> int:
        """The id that the tokeniser writes for a token (others may spell the same bytes); -1 if it never does."""
        known = self._ids.get(token)
        if known is None:
            ids = self.written(token)
            if ids is None:
                known = self._smallest.get(token, -1)
            else:
                known = ids[0] if len(ids) == 1 and self._tokens[ids[0]] == token else -1
            self._ids.keep(token, known)
        return known

    def written(self, text: bytes) -> list[int] | None:
        """What the tokeniser writes for a text; None if it cannot be asked."""
        try:
            return self._encode(text.decode())
        except UnicodeDecodeError:
            return None
