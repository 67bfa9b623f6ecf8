"""The mixtures of experts of the families: what each means by its experts, and where their tensors are.

One entry for each family whose experts differ from the default; `architectures.py` has the decoders around them.
"""

from __future__ import annotations

from .experts_config import ExpertNames, ExpertOptions

MIXTRAL_NAMES = ExpertNames(
    router="block_sparse_moe.gate", expert="block_sparse_moe.experts.{}", gate="w1", up="w3", down="w2"
)
DEEPSEEK_V3 = ExpertOptions(scoring="sigmoid", normalises=True, has_bias=True, counts_top=2)
ERNIE = ExpertOptions(
    ExpertNames(bias="mlp.moe_statics.e_score_correction_bias"),
    normalises=True,
    has_bias=True,
    bias_in_row=True,
    aliases=(
        ("moe_num_experts", "num_experts"),
        ("moe_k", "num_experts_per_tok"),
        ("moe_num_shared_experts", "n_shared_experts"),
        ("moe_layer_start_index", "first_k_dense_replace"),
        ("moe_layer_interval", "decoder_sparse_step"),
    ),
)
HUNYUAN = ExpertOptions(
    ExpertNames(router="mlp.gate.wg", shared="mlp.shared_mlp"),
    normalises=True,
    aliases=(
        ("num_experts", "num_experts"),
        ("moe_topk", "num_experts_per_tok"),
        ("intermediate_size", "moe_intermediate_size"),
        ("intermediate_size", "shared_expert_intermediate_size"),
    ),
)
GRANITE = ExpertOptions(
    ExpertNames(
        router="block_sparse_moe.router.layer",
        fused="block_sparse_moe",
        gate="input_linear",
        up="",
        down="output_linear",
        shared="shared_mlp",
    ),
    normalises=True,
    aliases=(("shared_intermediate_size", "shared_expert_intermediate_size"),),
)
QWEN2_NAMES = ExpertNames(shared="mlp.shared_expert", shared_gate="mlp.shared_expert_gate")
GPT_OSS = ExpertOptions(
    ExpertNames(router="mlp.router", stacked="mlp.experts"),
    normalises=True,
    alternates=True,
    linear_biases=True,
    clamps=(1.702, 7.0),
)
GEMMA4 = ExpertOptions(
    ExpertNames(router="router.proj", stacked="experts", scales="router.per_expert_scale"),
    normalises=True,
    is_beside=True,
    aliases=(("top_k_experts", "num_experts_per_tok"),),
)
LLAMA4 = ExpertOptions(
    ExpertNames(router="feed_forward.router", stacked="feed_forward.experts", shared="feed_forward.shared_expert"),
    scoring="sigmoid",
    scales_inputs=True,
    aliases=(
        ("intermediate_size", "moe_intermediate_size"),
        ("intermediate_size", "shared_expert_intermediate_size"),
        ("interleave_moe_layer_step", "decoder_sparse_step"),
    ),
)
