"""Stepping: a given text through a constraint, byte by byte, to where it leaves the language.

::

    {"name":"Ada","age":-1}
                        ^ '-' is not allowed here; [0-9]

Positions are bytes; `column` and `line` are for people. It asks the automaton only; `blame` finds why a JSON text
left its schema.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from functools import partial

from ..columns import K_KEY, K_LOOP, K_SET, K_TEXT
from ..constraint import Constraint
from ..keys.written import Written, in_string
from ..vocabulary.vocabulary import token_ids_of
from .graph import is_single
from .labels import byte_class, columns, quoted
from .rules import nodes_of_rule
from .terminal import Paint

MAX_TOKENS = 8
NO_CALLS = (K_LOOP, K_SET, K_KEY, K_TEXT)  # frames that count, or remember what was written
MAX_RUN = 60


@dataclass(frozen=True, slots=True)
class Stepping:
    """How far a text goes.

    Attributes:
        text: the text.
        num_bytes: how many bytes of it were read.
        leaves: whether the next byte is refused (else all were read).
        is_complete: whether the text may end where it was left (or at its end).
        allowed: the bytes that may follow there; "" if none may.
        num_tokens: how many different tokens may follow there, EOS not counted.
        tokens: a few of them, what is forced first.
        forced: what must come next, if anything must.
        rules: the rules one is in, the innermost first (calls that were a rule's last act are gone from the stack);
            empty if there is but one rule and it has not been called.
        reasons: why the byte is refused, as far as that is known.
    """

    text: str
    num_bytes: int
    leaves: bool
    is_complete: bool
    allowed: str
    num_tokens: int
    tokens: tuple[str, ...]
    forced: str
    rules: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    @property
    def line(self) -> int:
        """The line of the place, from 1."""
        return self._before.count("\n") + 1

    @property
    def column(self) -> int:
        """The column of the place in its line, from 0, in characters."""
        return len(self._before) - (self._before.rfind("\n") + 1)

    @property
    def _before(self) -> str:
        return self.text.encode(errors="surrogatepass")[: self.num_bytes].decode(errors="ignore")


def step_through(constraint: Constraint, text: str, rule_names: dict[int, str]) -> tuple[Stepping, bool]:
    """Reads the text as far as it goes.

    Args:
        rule_names: by the rule's entry in the network.

    Returns:
        What was found, and whether the byte after it is refused for what was written before: a key, or an item.
    """
    automaton = constraint.automaton
    data = text.encode(errors="surrogatepass")
    places: list[tuple[int, Written | None]] = [(automaton.start, None)]  # by number of bytes
    target = 0
    for byte in data:
        state, keys = places[-1]
        target = automaton.advance_bytes(state, bytes([byte]))
        after = _read(constraint, data[: len(places) - 1], state, keys, byte) if target else (0, None)
        if not after[0]:
            break
        places.append(after)
    count = len(places) - 1
    leaves = count < len(data)
    while leaves and count and data[count] & 0xC0 == 0x80:  # stand before the character, not inside it
        count -= 1
    state, keys = places[count]
    live = automaton.live_bytes(state).nonzero()[0].tolist()
    allowed = [byte for byte in live if _read(constraint, data[:count], state, keys, byte)[0]]
    mask = sum(1 << byte for byte in allowed)
    forced, _ = automaton.forced_run(state, MAX_RUN)
    if forced and forced[0] not in allowed:
        forced = b""
    tokens, num_tokens = _tokens(constraint, data[:count], state, keys, forced)
    found = Stepping(
        text,
        count,
        leaves,
        automaton.is_accepting(state),
        allowed_label(mask),
        num_tokens,
        tokens,
        quoted(forced) if forced else "",
        _rules(constraint, state, rule_names),
    )
    return found, leaves and target != 0


def _read(
    constraint: Constraint, text: bytes, state: int, keys: Written | None, byte: int
) -> tuple[int, Written | None]:
    """The state and what is remembered after a text and one more byte; state 0: it is refused."""
    repeats = constraint.caches.repeats
    if repeats is None:
        return constraint.automaton.advance_bytes(state, bytes([byte])), None
    return repeats.read(keys, state, bytes([byte]), partial(_begun_string, text))


def allowed_label(mask: int) -> str:
    """A set of bytes for people: all that begins a character beyond ASCII is one thing."""
    if not mask:
        return ""
    if is_single(mask):
        return quoted(bytes([mask.bit_length() - 1]))
    ascii_part, beyond = mask & ((1 << 128) - 1), mask >> 128
    if not beyond:
        return byte_class(mask)
    leads = mask >> 0xC2
    name = "characters beyond ASCII" if leads else byte_class(beyond << 128)
    return f"{byte_class(ascii_part)} and {name}" if ascii_part else name


def _tokens(
    constraint: Constraint, text: bytes, state: int, keys: Written | None, forced: bytes
) -> tuple[tuple[str, ...], int]:
    row, repeats = constraint.caches.masks.row(state).bits, constraint.caches.repeats
    if keys is not None and repeats is not None:
        row = repeats.row(keys, state, row, partial(_begun_string, text))
    ids = token_ids_of(row)
    spell = constraint.vocabulary.tokens
    found = list(dict.fromkeys(spell[token_id] for token_id in ids if spell[token_id]))
    if forced:
        found.sort(key=len, reverse=True)
    step = 1 if forced else max(1, len(found) // MAX_TOKENS)
    return tuple(quoted(token) for token in found[::step][:MAX_TOKENS]), len(found)


def _rules(constraint: Constraint, state: int, rule_names: dict[int, str]) -> tuple[str, ...]:
    """The names of the rules on the stack of the first configuration that has the deepest one."""
    automaton = constraint.automaton
    kind = automaton.network.kind
    owner = rule_owners(constraint, rule_names)
    best: list[str] = []
    for node, _, stack in automaton.configurations(state):
        returns = [frame for frame, _ in automaton.frames(stack) if kind[frame] not in NO_CALLS]
        names = [owner.get(place, "?") for place in (node, *returns)]
        if len(names) > len(best):
            best = names
    return tuple(best) if len(rule_names) > 1 or len(best) > 1 else ()


def rule_owners(constraint: Constraint, rule_names: dict[int, str]) -> dict[int, str]:
    """The rule that each node belongs to; bodies of loops belong to the rule around them."""
    found: dict[int, str] = {}
    for entry, name in rule_names.items():
        for node in nodes_of_rule(constraint.automaton.network, entry):
            found.setdefault(node, name)
    return found


def _begun_string(text: bytes) -> bytes:
    """What a string has so far in which a text ends."""
    return in_string(text, True) or b""


def stepping_lines(steps: Stepping, *, width: int, paint: Paint) -> list[str]:
    """Where a text stops, with a caret below the place."""
    out = ["", paint("text", "title")]
    line, column = _window(steps, width - 2)
    out.append(f"  {line}")
    out.append(f"  {' ' * column}{paint('^', 'error' if steps.leaves else 'title')}")
    place = f"line {steps.line}, column {steps.column + 1}" if steps.line > 1 else f"column {steps.column + 1}"
    if steps.leaves:
        refused = quoted(
            steps.text.encode(errors="surrogatepass")[steps.num_bytes :].decode(errors="replace")[:1].encode()
        )
        out.append(
            paint(f"  leaves the language at byte {steps.num_bytes} ({place}): {refused} is not allowed", "error")
        )
    elif steps.is_complete:
        out.append("  belongs to the language: it may end here")
    else:
        out.append(f"  is the beginning of texts of the language: all {steps.num_bytes} bytes were read")
    for reason in steps.reasons:
        out += textwrap.wrap(f"because  {reason}", width - 2, initial_indent="  ", subsequent_indent="           ")
    rows: list[tuple[str, str]] = []
    if steps.leaves and steps.is_complete:
        rows.append(("here", "the text may end"))
    if steps.forced:
        rows.append(("must follow", steps.forced))
    elif steps.allowed:
        rows.append(("may follow", steps.allowed))
    elif not steps.leaves or not steps.is_complete:
        rows.append(("may follow", "nothing"))
    if steps.num_tokens:
        rows.append(("as tokens", f"{'  '.join(steps.tokens)}{_more(steps)}"))
    if steps.rules:
        rows.append(("in rules", " < ".join(steps.rules)))
    for head, text in rows:
        out += textwrap.wrap(f"{head:<12} {text}", width - 2, initial_indent="  ", subsequent_indent=" " * 15)
    return out


def _more(steps: Stepping) -> str:
    missing = steps.num_tokens - len(steps.tokens)
    return f"  … {missing:,} more" if missing else ""


def _window(steps: Stepping, width: int) -> tuple[str, int]:
    """The line of the place, cut to the width around it, and the columns before it."""
    whole = steps.text.split("\n")[steps.line - 1]
    first = max(0, steps.column - width // 2)
    head = "…" if first else ""
    shown = "".join(c if c.isprintable() else "·" for c in whole[first : first + width - 2])
    tail = "…" if first + width - 2 < len(whole) else ""
    return head + shown + tail, len(head) + columns(shown[: steps.column - first])
