"""The shape of a mixture of experts and the rule by which a token chooses its own, from `config.json`.

Families write the same few things under names of their own; here they are said once. Knows no tensors.

Sources: those of `kernels/expert_choice.py`; shared experts DeepSeek-V2 2405.04434; gpt-oss 2508.10925 (biases
everywhere, a clamped gate, weights in MXFP4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .json_file import MOST_WIDTH, Fields

if TYPE_CHECKING:
    from ...kernels.expert_choice import Scoring

MOST_EXPERTS = 1 << 14
NUMBER_NAMES = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """Tensor names below `model.layers.<i>.`; `expert` has a place for the expert's number.

    bias, shared, shared_gate: of routers with a balancing bias, of shared experts, and of what weighs those.
    shared_parts: gate, up and down of the shared expert, where they have other names than those of the others.
    scales: of a factor on each expert's share; "": there is none.
    latents: of the projections before experts and after them.
    stacked: of all experts together, whose weights are single tensors then; "": each expert has tensors of its own.
    fused: as stacked, below which are `input_linear.weight` (gate and up) and `output_linear.weight` (Granite).
    """

    router: str = "mlp.gate"
    bias: str = "mlp.gate.e_score_correction_bias"
    expert: str = "mlp.experts.{}"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    shared: str = "mlp.shared_experts"
    shared_gate: str = ""
    scales: str = ""
    latents: tuple[str, str] = ("", "")
    shared_parts: tuple[str, str, str] | None = None
    stacked: str = ""
    fused: str = ""

    def gate_up(self, prefix: str) -> tuple[str, ...]:
        """Names of gate and up of what is below `prefix`; one name if they are one tensor."""
        return tuple(f"{prefix}{name}" for name in (self.gate, self.up) if name)

    @property
    def of_shared(self) -> ExpertNames:
        """These names with the shared expert's gate, up and down."""
        if self.shared_parts is None:
            return self
        gate, up, down = self.shared_parts
        return replace(self, gate=gate, up=up, down=down)


@dataclass(frozen=True, slots=True)
class ExpertOptions:
    """What an architecture means by its experts where `config.json` does not say.

    Attributes:
        scoring: of the router's logits.
        normalises: what an absent `norm_topk_prob` means: shares are divided by their sum.
        has_bias: a balancing bias is added to the scores before the choice.
        bias_in_row: that bias is kept as `[1, num_experts]`.
        counts_top: of the best experts of a group that make the group's score.
        scales_inputs: a share is a factor on what an expert is given, not on what it makes (Llama 4).
        mixes_near: a share is that among the experts whose logits are near the chosen one's (Phi-3.5-MoE).
        alternates: outputs of gate and up alternate where experts are single tensors.
        linear_biases: router and experts add biases to what their matrices make.
        aliases: keys of `config.json` that stand for others here; a list there has the same number for all layers.
        is_beside: a mixture is beside the layer's MLP, with norms of its own, and not in its place (`beside_mlp.py`).
        gateless: an expert is `down(max(up(x), 0)²)`, the shared one too; `names.gate` is "" then.
        has_latents: `moe_latent_size` is read.
        clamps: the gate is clamped (`kernels.Gate`), with this alpha and limit where none is named; None: it is not.
    """

    names: ExpertNames = ExpertNames()
    scoring: Scoring = "softmax"
    normalises: bool = False
    has_bias: bool = False
    bias_in_row: bool = False
    counts_top: int = 1
    scales_inputs: bool = False
    mixes_near: bool = False
    alternates: bool = False
    linear_biases: bool = False
    is_beside: bool = False
    gateless: bool = False
    has_latents: bool = False
    clamps: tuple[float, float] | None = None
    aliases: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """Experts of the layers that have them.

    Attributes:
        num_experts: of a layer.
        num_chosen: of a token.
        normalises: their shares are divided by their sum.
        scale: factor on the shares.
        num_groups, num_chosen_groups: they are chosen from `num_chosen_groups` of `num_groups` equal groups.
        inner_size: width of one expert's gate.
        latent_size: width of what experts take and make, between two projections (Nemotron-H); 0: hidden states.
        shared_size: width of the gate of what every token goes through besides; 0: nothing.
        has_experts: of each layer, whether its MLP is a mixture.
        nearness: how far off logits may be, as a share of theirs, that take part in a share; 0.0: all do.
        clamps: alpha and limit of every expert's gate, where it is clamped (`kernels.Gate`); None: it is the model's.
        is_mxfp4: the checkpoint keeps the experts' matrices in 4 bits a number (`kernels/mxfp4.py`).
    """

    options: ExpertOptions
    num_experts: int
    num_chosen: int
    normalises: bool
    scale: float
    num_groups: int
    num_chosen_groups: int
    inner_size: int
    shared_size: int
    has_experts: tuple[bool, ...]
    nearness: float
    clamps: tuple[float, float] | None
    is_mxfp4: bool
    latent_size: int = 0

    @staticmethod
    def from_fields(fields: Fields, options: ExpertOptions, num_layers: int, *, is_mxfp4: bool) -> ExpertsConfig:
        """Raises ModelError: a number that is missing, odd, or contradicts another."""
        fields = _renamed(fields, options.aliases)
        options = replace(options, has_bias=fields.boolean("use_expert_bias", options.has_bias))
        key = next((name for name in NUMBER_NAMES if name in fields), NUMBER_NAMES[0])
        num_experts, num_chosen = fields.integer(key, at_most=MOST_EXPERTS), fields.integer("num_experts_per_tok")
        if num_chosen > num_experts:
            raise fields.odd("num_experts_per_tok", f"at most {key} ({num_experts})")
        if fields.text("scoring_func", options.scoring) != options.scoring:
            raise fields.odd("scoring_func", options.scoring)
        has_groups = fields.text("topk_method", "") != "greedy"
        num_groups = fields.integer("n_group", 1) if has_groups else 1
        num_chosen_groups = fields.integer("topk_group", 1) if has_groups else 1
        if num_experts % num_groups or num_chosen_groups > num_groups:
            raise fields.odd("n_group", f"a divisor of {key} ({num_experts}), and at least topk_group")
        if num_chosen > num_experts // num_groups * num_chosen_groups:
            raise fields.odd("topk_group", f"groups that hold num_experts_per_tok ({num_chosen}) experts")
        inner_size = fields.integer(
            "moe_intermediate_size",
            None if "moe_intermediate_size" in fields else fields.integer("intermediate_size"),
            at_most=MOST_WIDTH,
        )
        return ExpertsConfig(
            options,
            num_experts,
            num_chosen,
            fields.boolean("norm_topk_prob", options.normalises),
            fields.number("routed_scaling_factor", 1.0),
            num_groups,
            num_chosen_groups,
            inner_size,
            fields.integer("shared_expert_intermediate_size", 0, at_least=0, at_most=MOST_WIDTH)
            or inner_size * fields.integer("n_shared_experts", 0, at_least=0, at_most=MOST_EXPERTS),
            _layers(fields, num_layers),
            2 * fields.number("router_jitter_noise", 0.01) if options.mixes_near else 0.0,
            _clamps(fields, options),
            is_mxfp4,
            fields.integer("moe_latent_size", 0, at_least=0, at_most=MOST_WIDTH) if options.has_latents else 0,
        )

    @property
    def num_firsts(self) -> int:
        """Matrices of an expert before its activation: gate and up."""
        return 1 if self.options.gateless else 2

    @property
    def num_scored(self) -> int:
        """Outputs of the router's matrix: a score for each expert, and one for the shared expert if it is weighed."""
        return self.num_experts + bool(self.shared_size and self.options.names.shared_gate)


def _renamed(fields: Fields, aliases: tuple[tuple[str, str], ...]) -> Fields:
    values = dict(fields.values)
    for theirs, ours in aliases:
        value = values.get(theirs)
        if isinstance(value, list):
            if not value or any(each != value[0] for each in value):
                raise fields.odd(theirs, "the same number for all layers")
            value = value[0]
        if value is not None:
            values[ours] = value
    return Fields(values, fields.place)


def _layers(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    """Which layers are mixtures: those that are named so, or from one on, every n-th, but for those that are listed."""
    kinds = fields.values.get("mlp_layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != num_layers or any(k not in ("sparse", "dense") for k in kinds):
            raise fields.odd("mlp_layer_types", f'{num_layers} entries of "sparse" or "dense"')
        return tuple(kind == "sparse" for kind in kinds)
    listed = fields.values.get("moe_layers")  # Llama 4
    if listed is not None:
        if not isinstance(listed, list) or any(isinstance(each, bool) or not isinstance(each, int) for each in listed):
            raise fields.odd("moe_layers", "a list of layers")
        return tuple(index in listed for index in range(num_layers))
    first = fields.integer("first_k_dense_replace", 0, at_least=0)
    dense = fields.values.get("mlp_only_layers") or []
    if not isinstance(dense, list) or any(isinstance(index, bool) or not isinstance(index, int) for index in dense):
        raise fields.odd("mlp_only_layers", "a list of layers")
    dense = frozenset(dense)
    end = fields.integer("moe_layer_end_index", -1, at_least=-1)  # the last one, in Ernie 4.5
    end = num_layers if end < 0 else end
    step = fields.integer("decoder_sparse_step", 1)
    every = fields.integer("moe_layer_freq", 1)
    return tuple(
        first <= index <= end and index not in dense and (index + 1) % step == 0 and index % every == 0
        for index in range(num_layers)
    )


def _clamps(fields: Fields, options: ExpertOptions) -> tuple[float, float] | None:
    if options.clamps is None:
        return None
    alpha, limit = options.clamps
    return fields.number("swiglu_alpha", alpha), fields.number("swiglu_limit", limit)
