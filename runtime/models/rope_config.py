"""What a checkpoint says of its rotary position embeddings, in `config.json`; `rope` makes the table. Knows no tensors.

Sources: those of `rope.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .json_file import Fields

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """How positions turn queries and keys.

    Attributes:
        rope_type: one of `ROPE_TYPES`.
        theta: base of the frequencies.
        rotary_dim: leading elements of a head that turn; the rest stay (partial rotary).
        factor: how much longer than the original the context was made.
        original_max_positions: context length before scaling.
        attention_factor: multiplies cosines and sines; None: derived from `factor` as the paper says.
        low_freq_factor, high_freq_factor: `llama3` only.
        beta_fast, beta_slow, mscale, mscale_all_dim, truncate: `yarn` only.
        short_factor, long_factor: `longrope` only, one number per pair.
        num_turned: `proportional` only, how many of the pairs turn; the others, which stay, are among `rotary_dim`.
    """

    rope_type: str
    theta: float
    rotary_dim: int
    factor: float = 1.0
    original_max_positions: int = 0
    attention_factor: float | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    num_turned: int = 0

    def takes_long_factors(self, max_positions: int) -> bool:
        """Whether a `longrope` that serves positions below `max_positions` is a long one."""
        return self.rope_type == "longrope" and max_positions > self.original_max_positions

    def switches_at(self, max_positions: int) -> int | None:
        """The most tokens of a sequence that takes the short factors, where longer ones are served by others."""
        switches = self.takes_long_factors(max_positions) and self.short_factor != self.long_factor
        return self.original_max_positions if switches else None

    @staticmethod
    def from_fields(
        scaling: Fields, *, theta: float, head_dim: int, partial_rotary: float, max_positions: int, original: int
    ) -> RopeConfig:
        """Reads `rope_scaling` (with `rope_theta` next to it) or `rope_parameters` (with everything inside).

        The keyword arguments are what the configuration says outside of `scaling`; entries inside go first.
        `original` is a top-level `original_max_position_embeddings` (0: none), which Phi-3 has.
        """
        kind = scaling.text("rope_type", scaling.text("type", "default"))
        # "mrope" (Qwen2-VL) has positions of its own for images; a token of text has the same one in all of them
        kind = {"su": "longrope", "mrope": "default"}.get(kind, kind)
        if kind not in ROPE_TYPES:
            raise scaling.odd("rope_type", f"one of {', '.join(ROPE_TYPES)}")
        share = scaling.number("partial_rotary_factor", partial_rotary)
        rotary_dim = head_dim if kind == "proportional" else int(head_dim * share)
        num_turned = int(share * head_dim // 2) if kind == "proportional" else 0
        if rotary_dim % 2 or not 0 < rotary_dim <= head_dim or 2 * num_turned > rotary_dim:
            raise scaling.odd("partial_rotary_factor", f"a factor that makes an even part of head_dim {head_dim}")
        if kind == "dynamic" and "alpha" in scaling and rotary_dim > 2:  # Hunyuan: a longer base, once for all lengths
            kind = "default"
            theta = scaling.number("rope_theta", theta) * scaling.number("alpha") ** (rotary_dim / (rotary_dim - 2))
            scaling = Fields({}, scaling.place)
        original = original or scaling.integer("original_max_position_embeddings", max_positions)
        if kind == "longrope":
            default_factor: float | None = max_positions / original
            short, long = scaling.numbers("short_factor"), scaling.numbers("long_factor")
            for key, values in (("short_factor", short), ("long_factor", long)):
                if len(values) != rotary_dim // 2 or min(values) <= 0:
                    raise scaling.odd(key, f"{rotary_dim // 2} positive numbers (half of the rotary part of a head)")
            if "short_mscale" in scaling and "attention_factor" not in scaling:  # Phi-3.5-MoE
                if scaling.number("long_mscale") != scaling.number("short_mscale"):
                    raise scaling.odd("long_mscale", "the same number as short_mscale")
                scaling = Fields({**scaling.values, "attention_factor": scaling.values["short_mscale"]}, scaling.place)
        else:
            default_factor, short, long = (1.0 if kind in ("default", "proportional") else None), (), ()
        return RopeConfig(
            rope_type=kind,
            theta=scaling.number("rope_theta", theta),
            rotary_dim=rotary_dim,
            factor=scaling.number("factor", default_factor),
            original_max_positions=original,
            attention_factor=scaling.number("attention_factor") if "attention_factor" in scaling else None,
            low_freq_factor=scaling.number("low_freq_factor", None if kind == "llama3" else 1.0),
            high_freq_factor=scaling.number("high_freq_factor", None if kind == "llama3" else 4.0),
            beta_fast=scaling.number("beta_fast", 32.0),
            beta_slow=scaling.number("beta_slow", 1.0),
            mscale=scaling.number("mscale", 0.0, above=-1.0),
            mscale_all_dim=scaling.number("mscale_all_dim", 0.0, above=-1.0),
            truncate=scaling.boolean("truncate", True),
            short_factor=short,
            long_factor=long,
            num_turned=num_turned,
        )
