"""A decode step of a mixture of experts on a GPU against the roofline, as `decode_step.py` does it for dense models.

    python bench/studies/decode_experts.py         the table
    python bench/studies/decode_experts.py --tiny  tiny models on the CPU: shows that the script runs, measures nothing

Models have the shapes of Qwen3-30B-A3B (16 of its 48 layers, in bf16) and gpt-oss-20b (experts in MXFP4) and random
weights. A step reads the weights of every expert that some token chose: of E experts, B tokens that choose k of them at
random reach E · (1 - (1 - k / E)^B). Batches of 3 and 5 fill a graph up to 4 and 8 rows, which must cost no experts.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from typing import Any

import torch
from decode_step import Decoding, TimingRecorder, bytes_of_token, copy_bandwidth, median_step
from random_decoder import random_decoder

from phloem.kernels import LinearWeights, keep_mxfp4, pack_linear, pack_linears
from phloem.runtime.models import Decoder, ModelConfig
from phloem.runtime.models.experts import ExpertsWeights

QWEN3_30B_A3B = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "max_position_embeddings": 16384,
    "tie_word_embeddings": False,
}
GPT_OSS_20B = {
    "architectures": ["GptOssForCausalLM"],
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "max_position_embeddings": 16384,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4"},
}
TINY = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY |= {"num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 32}
MODELS = {"30B-A3B / 3": QWEN3_30B_A3B, "gpt-oss-20b": GPT_OSS_20B}
CASES = [(1, 1024), (3, 1024), (4, 1024), (5, 1024), (8, 1024), (32, 1024), (128, 1024), (1, 8192), (32, 8192)]


def random_experts(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> ExpertsWeights:
    """One layer's mixture; MXFP4 stays what it is on a GPU, where it is read as it was published."""
    experts, hidden = config.experts, config.hidden_size
    assert experts is not None
    has_bias = experts.options.linear_biases

    def biases(*shape: int) -> Any:
        return torch.zeros(shape, device=device, dtype=dtype) if has_bias else None

    def stack(rows: int, columns: int) -> LinearWeights:
        shape = (experts.num_experts, rows)
        if experts.is_mxfp4 and device.type == "cuda":
            blocks = torch.randint(0, 256, (*shape, columns // 32, 16), dtype=torch.uint8, device=device)
            scales = torch.full((*shape, columns // 32), 119, dtype=torch.uint8, device=device)
            return keep_mxfp4(blocks, scales, biases(*shape))
        return pack_linears(torch.randn(*shape, columns, device=device, dtype=dtype) * 0.02, biases(*shape))

    router_bias = torch.zeros(experts.num_experts, device=device) if has_bias else None
    return ExpertsWeights(
        router=pack_linear(torch.randn(experts.num_experts, hidden, device=device), router_bias),
        bias=None,
        gate_up=stack(2 * experts.inner_size, hidden),
        down=stack(hidden, experts.inner_size),
        shared_gate_up=None,
        shared_down=None,
    )


def bytes_of_step(decoder: Decoder, one: ExpertsWeights, batch: int, context_len: int) -> float:
    """What a step has to read: weights but for experts that no token chose, and KV within the windows."""
    config, experts = decoder.config, decoder.config.experts
    assert experts is not None
    kept = config.num_layers * (one.gate_up.num_bytes + one.down.num_bytes)
    embedding = (config.vocab_size - batch) * config.hidden_size * decoder.dtype.itemsize
    reached = 1 - (1 - experts.num_chosen / experts.num_experts) ** batch
    seen = [min(context_len, layer.window or context_len) for layer in config.layers]
    keys = batch * sum(seen) * bytes_of_token(decoder) // config.num_layers
    return decoder.num_weight_bytes - embedding - kept * (1 - reached) + keys


def report(name: str, decoder: Decoder, one: ExpertsWeights, bandwidth: float, count: int) -> None:
    for batch, context_len in CASES:
        floor = bytes_of_step(decoder, one, batch, context_len) / bandwidth
        recorder = TimingRecorder()
        decoding = Decoding(decoder, recorder, batch, context_len, 2 * (count + 8))
        step = median_step(decoding, count)
        recorder.times = True
        median_step(decoding, count)
        graph = statistics.median(start.elapsed_time(end) for start, end in recorder.events[-count:]) * 1e3
        print(
            f"{name:12} {batch:5} {context_len:8} {floor:9.0f} {graph:9.0f} {step:9.0f}  {100 * floor / graph:5.1f} %",
            flush=True,
        )
        del decoding, recorder
        gc.collect()  # a runner and its graphs hold each other, and with them the KV
        torch.cuda.empty_cache()


def random_mixture(values: dict[str, Any], device: torch.device, dtype: torch.dtype) -> tuple[Decoder, ExpertsWeights]:
    """A decoder of this configuration, and the experts of one of its layers."""
    made: list[ExpertsWeights] = []

    def make(config: ModelConfig) -> ExpertsWeights:
        made.append(random_experts(config, device, dtype))
        return made[-1]

    return random_decoder(values, device, dtype, experts=make), made[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="tiny models on the CPU, to try the script")
    parser.add_argument("--count", type=int, default=60, help="steps per case")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.tiny:
        for name, values in MODELS.items():
            decoder, one = random_mixture(values | TINY, torch.device("cpu"), torch.float32)
            took, size = median_step(Decoding(decoder, None, 3, 40, 16), 8), bytes_of_step(decoder, one, 3, 40)
            print(f"tiny {name} on the CPU, batch 3: {took:.0f} us a step, {size:.0f} bytes; no roofline without a GPU")
        return
    if not torch.cuda.is_available():
        sys.exit(
            "bench/studies/decode_experts.py measures CUDA graphs and found no CUDA device; --tiny tries it on a CPU"
        )
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; copy {bandwidth / 1e6:.2f} TB/s; microseconds")
    print(f"{'':12} {'batch':>5} {'context':>8} {'roofline':>9} {'graph':>9} {'step':>9}  roofline / graph")
    for name, values in MODELS.items():
        report(name, *random_mixture(values, torch.device("cuda"), torch.bfloat16), bandwidth, arguments.count)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
