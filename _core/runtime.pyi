"""The loop of look-ups (`runtime/core/lookup.h`); addresses are those of what `runtime/lookup/layout.py` lays out."""

def follow(state: int, token_ids: int, num_tokens: int, num_silent: int, floor: float, limit: int, /) -> int:
    """Takes in tokens (int32), and drafts what follows.

    Twice how many, and 1 more if a draft would have had a token right that is new; -1, with nothing changed, where the
    tables have no room for the tokens.
    """

def reenter(state: int, /) -> None:
    """Takes note of all tokens of the text anew, in tables that hold none."""
