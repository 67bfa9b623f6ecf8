"""Which kernels are compiled, and in which configurations: those that models launch, and their odd neighbours.

Matrix products are in `product_cases`; compiling a case is others' matter (`check_kernels.py`, `check_folds.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from kernel_case import FIRST_FP8, Case, argument_types
from product_cases import expert_cases, grouped_cases, int8_cases, linear_cases, lora_cases, mxfp4_cases

SEEN_TYPES = {"seen_ptr": "*fp32", "seen_places_ptr": "*i32"}
CHUNKS = "chunks"
POINTERS = {"int8": "*i8", "int4": "*u8"}


def attention_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.launch import SPLIT_SIZE, attention_config, folds_splits, tile_classes
    from phloem.kernels.triton.attention import attend_items

    shapes = [
        # element, stored as, group, head_dim, block_size, window (or chunks), soft cap, sinks
        ("bf16", "bf16", 4, 128, 16, False, False, False),
        ("bf16", "int8", 4, 128, 16, False, False, False),
        ("bf16", "fp8e4nv", 4, 128, 16, False, False, False),
        ("bf16", "int4", 4, 128, 16, False, False, False),
        ("bf16", "bf16", 4, 128, 64, False, False, False),
        ("bf16", "fp8e4nv", 4, 128, 64, False, False, False),
        ("fp16", "fp16", 3, 64, 16, False, False, False),
        ("fp16", "int8", 3, 64, 16, False, False, False),
        ("fp16", "int4", 3, 64, 16, False, False, False),
        ("bf16", "bf16", 8, 64, 16, True, False, True),
        ("bf16", "fp8e4nv", 8, 64, 16, True, False, True),
        ("bf16", "bf16", 5, 128, 16, CHUNKS, False, False),
        ("bf16", "bf16", 1, 96, 16, False, False, False),
        ("bf16", "bf16", 8, 512, 16, False, False, False),
        ("bf16", "int8", 8, 512, 16, False, False, False),
        ("fp32", "fp32", 8, 512, 16, False, False, False),
        ("bf16", "bf16", 2, 256, 16, True, True, False),
        ("bf16", "int8", 2, 256, 16, True, True, False),
        ("bf16", "int4", 2, 256, 16, True, True, False),
        ("bf16", "bf16", 4, 128, 1, False, False, False),
        ("bf16", "int8", 4, 128, 1, False, False, False),
        ("bf16", "bf16", 3, 32, 16, False, False, False),
        ("fp32", "fp32", 3, 64, 16, False, False, False),
        ("fp32", "int8", 3, 64, 16, False, False, False),
        ("fp32", "int4", 3, 64, 16, False, False, False),
        ("fp32", "fp32", 4, 128, 16, False, False, False),
        ("fp32", "fp32", 2, 256, 16, True, True, False),
    ]
    fixed = {
        **{name: "*fp32" for name in ("sums_ptr", "tops_ptr", "k_scales_ptr", "v_scales_ptr")},
        **{
            name: "*i32" for name in ("items_ptr", "launch_ptr", "rows_ptr", "positions_ptr", "slots_ptr", "tables_ptr")
        },
        **{name: "fp32" for name in ("scale", "soft_cap")},
        **SEEN_TYPES,
    }
    counted = ([*shapes[0], True], [*shapes[6], True], [*shapes[1], True])  # attention that keys receive is counted
    chosen = (shapes[0], *shapes[2:4]) if subset else shapes
    every = [*([*shape, False] for shape in chosen), *counted[: 1 if subset else None]]
    for element, stored, group, head_dim, block_size, window, cap, sinks, seen in every:
        kept = {name: POINTERS.get(stored, f"*{stored}") for name in ("k_ptr", "v_ptr")}
        if stored == "int4":
            kept |= {name: "*i32" for name in ("k_scales_ptr", "v_scales_ptr")}
        itemsize = 4 if element == "fp32" else 2
        for block_rows in tile_classes(head_dim, False, itemsize, stored != element, seen):
            for folds in (False, True):
                wanted = ((16, False), (64, True)) if stored == element and not seen else ((16, False),)
                if (subset and (block_rows, folds) not in wanted) or (folds and not folds_splits(block_rows, head_dim)):
                    continue
                config = attention_config(block_rows, folds, head_dim, itemsize, stored != element, seen)
                padded = 1 << (head_dim - 1).bit_length()
                constants = {
                    "GROUP": group,
                    "HEAD_DIM": head_dim,
                    "BLOCK_DIM": padded,
                    "BLOCK_ROWS": block_rows,
                    "BLOCK_KEYS": config.block_keys,
                    "BLOCK_SIZE": block_size,
                    "SPLIT": SPLIT_SIZE,
                    "FOLDS": folds,
                    "QUANTISED": stored != element,
                    "IN_PAIRS": stored == "int4",
                    "HAS_WINDOW": bool(window),
                    "IN_CHUNKS": window == CHUNKS,
                    "HAS_CAP": cap,
                    "HAS_SINKS": sinks,
                    "SEEN": seen,
                    "STAGES": config.num_stages,
                }
                walk = "folds" if folds else "one sum"
                kind = element if stored == element else f"{element} KV {stored}"
                named = (
                    (" chunks" if window == CHUNKS else " window", window),
                    (" cap", cap),
                    (" sinks", sinks),
                    (" counted", seen),
                )
                options = "".join(option for option, is_on in named if is_on)
                yield Case(
                    f"attention {kind} G{group} D{head_dim} page{block_size} rows{block_rows} {walk}{options}",
                    attend_items,
                    argument_types(attend_items, element, {**fixed, **kept}, constants),
                    constants,
                    config.num_warps,
                    config.num_stages,
                    (config.block_keys, padded // (2 if stored == "int4" else 1), 1 if stored != element else itemsize),
                    frozenset({"num_heads", "window"}),
                    FIRST_FP8 if stored == "fp8e4nv" else 80,
                    config.max_registers,
                )


def latent_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.launch import SPLIT_SIZE, folds_splits, latent_config, tile_classes
    from phloem.kernels.triton.latent import attend_latents, scatter_latents

    rank, rotary = 512, 64
    fixed = {
        **{name: "*fp32" for name in ("sums_ptr", "tops_ptr")},
        **{name: "*i32" for name in ("items_ptr", "launch_ptr", "rows_ptr", "positions_ptr", "tables_ptr")},
        "scale": "fp32",
        **SEEN_TYPES,
    }
    pages = (("bf16", 16), ("fp16", 64), ("bf16", 1))
    widths = {"RANK": rank, "ROTARY": rotary}
    shapes = [("bf16", 16, False)] if subset else [(e, n, s) for e, n in pages for s in (False, True)]
    for element, block_size, seen in shapes:
        for block_rows in tile_classes(rank + rotary, deterministic=False):
            for folds in (False, True):
                if folds and not folds_splits(block_rows, rank + rotary):
                    continue
                if subset and (block_rows, folds) != (16, True):
                    continue
                config = latent_config(block_rows, 2)
                constants = {
                    **widths,
                    "BLOCK_ROWS": block_rows,
                    "BLOCK_KEYS": config.block_keys,
                    "BLOCK_SIZE": block_size,
                    "SPLIT": SPLIT_SIZE,
                    "FOLDS": folds,
                    "SEEN": seen,
                    "STAGES": config.num_stages,
                }
                walk = ("folds" if folds else "one sum") + (" counted" if seen else "")
                yield Case(
                    f"latents {element} {rank}+{rotary} page{block_size} rows{block_rows} {walk}",
                    attend_latents,
                    argument_types(attend_latents, element, {**fixed, "slots_ptr": "*i32"}, constants),
                    constants,
                    config.num_warps,
                    config.num_stages,
                    (config.block_keys, rank, 2),
                    frozenset({"num_heads"}),
                    max_registers=config.max_registers,
                    tiles=1,
                )
    types = argument_types(scatter_latents, "bf16", {"slots_ptr": "*i64"}, {"WIDTH": 576, "BLOCK": 1024})
    yield Case("write latents", scatter_latents, types, {"WIDTH": rank + rotary, "BLOCK": 1024})


def route_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.triton.route import BLOCK_PAIRS, choose_rows, choosing_warps, sort_pairs

    shapes = ((128, 8, 1, 1, 1, True), (32, 4, 1, 1, 1, True), (160, 6, 8, 3, 1, True), (256, 8, 8, 4, 2, False))
    for num_experts, num_chosen, num_groups, num_chosen_groups, counts_top, is_softmax in shapes[: 1 if subset else 4]:
        block = 1 << (num_experts - 1).bit_length()
        constants: dict[str, Any] = {
            "NUM_EXPERTS": num_experts,
            "NUM_CHOSEN": num_chosen,
            "NUM_GROUPS": num_groups,
            "NUM_CHOSEN_GROUPS": num_chosen_groups,
            "COUNTS_TOP": counts_top,
            "IS_SOFTMAX": is_softmax,
            "NORMALISES": True,
            "HAS_BIAS": not is_softmax,
            "HAS_SLOTS": True,
            "BLOCK": block,
            "BLOCK_GROUPS": num_groups,
            "BLOCK_CHOSEN": 1 << (num_chosen - 1).bit_length(),
        }
        types = {"slots_ptr": "*i64", "chosen_ptr": "*i32", "scale": "fp32"}
        name = f"route {num_chosen} of {num_experts}"
        yield Case(
            name, choose_rows, argument_types(choose_rows, "fp32", types, constants), constants, choosing_warps(block)
        )
        constants = {"NUM_EXPERTS": num_experts, "BLOCK_ROWS": 16, "BLOCK_EXPERTS": block, "BLOCK": BLOCK_PAIRS}
        yield Case(f"{name} sorted", sort_pairs, argument_types(sort_pairs, "i32", {}, constants), constants)


def other_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.launch import SPLIT_SIZE, elementwise_warps, most_registers
    from phloem.kernels.triton.advance import LANES, walk_tokens
    from phloem.kernels.triton.gate import BLOCK, gate_rows
    from phloem.kernels.triton.heads import HEADS, place_rows
    from phloem.kernels.triton.logprobs import report_logprobs
    from phloem.kernels.triton.merge import merge_rows
    from phloem.kernels.triton.norm import norm_rows
    from phloem.kernels.triton.rope import BLOCK_HEADS, rotate
    from phloem.kernels.triton.sample import choose_tokens
    from phloem.kernels.triton.scores import NUM_WARPS, summarise_groups

    def case(name: str, kernel: Any, fixed: dict[str, str], constants: dict[str, Any], num_warps: int) -> Case:
        types = argument_types(kernel, "bf16", fixed, constants)
        loose = {"num_heads", "num_kv_heads", "half", "width", "window", "vocab_size", "mask_stride"}
        loose |= {"num_masks", "num_counts", "num_biases", "num_drafted", "num_top", "num_rows"}
        return Case(name, kernel, types, constants, num_warps, undivided=frozenset(loose))

    ints = {
        n: "*i32" for n in ("tokens_ptr", "count_ptr", "slots_ptr", "mask_ptr", "mask_rows_ptr", "top_k_ptr", "ids_ptr")
    }
    longs = {n: "*i64" for n in ("seeds_ptr",)}
    floats = {n: "*fp32" for n in ("sums_ptr", "tops_ptr", "cos_sin_ptr", "thresholds_ptr", "values_ptr")}
    floats |= {n: "*fp32" for n in ("temperature_ptr", "top_p_ptr", "min_p_ptr")}
    fixed = {**ints, **longs, **floats, "eps": "fp32"}
    for has_sinks in (False,) if subset else (False, True):
        constants = {"HEAD_DIM": 128, "BLOCK_DIM": 128, "SPLIT": SPLIT_SIZE, "HAS_WINDOW": has_sinks}
        constants["IN_CHUNKS"] = False
        merge_types = {**fixed, "positions_ptr": "*i32"}
        yield case("merge D128", merge_rows, merge_types, {**constants, "HAS_SINKS": has_sinks}, 1)
    scales = {name: "*fp32" for name in ("k_scales_ptr", "v_scales_ptr", "q_norm_ptr", "k_norm_ptr")}
    kinds = (("bf16", 0.0), ("int8", 127.0), ("fp8e4nv", 448.0), ("int4", 0.0))
    for stored, limit in kinds[2:] if subset else kinds:
        pointer = POINTERS.get(stored, f"*{stored}")
        kept = {"k_cache_ptr": pointer, "v_cache_ptr": pointer, "slots_ptr": "*i64", "positions_ptr": "*i64"}
        if stored == "int4":
            kept |= {name: "*i32" for name in ("k_scales_ptr", "v_scales_ptr")}
        for head_dim, has_norm in ((128, True),) if subset else ((64, False), (96, False), (128, True), (256, True)):
            constants = {"HEAD_DIM": head_dim, "HEADS": HEADS, "BLOCK_DIM": 1 << (head_dim - 1).bit_length()}
            constants |= {"BLOCK_SIZE": 16, "HAS_NORM": has_norm, "HAS_ROPE": True}
            constants |= {"LIMIT": limit, "IS_INT": stored == "int8", "IN_PAIRS": stored == "int4"}
            name = f"place heads D{head_dim}{' normed' if has_norm else ''} {stored}"
            placed = case(name, place_rows, {**fixed, **scales, **kept}, constants, 4)
            yield replace(placed, oldest=FIRST_FP8 if stored == "fp8e4nv" else 80)
    rope_types = {**fixed, "positions_ptr": "*i64"}
    yield case("rope D128", rotate, rope_types, {"HEADS": BLOCK_HEADS, "BLOCK_HALF": 64}, 4)
    clamps = {"alpha": "fp32", "limit": "fp32"}
    for kind in ("silu",) if subset else ("silu", "gelu", "clamped", "squared"):
        kinds = {"GELU": kind == "gelu", "CLAMPED": kind == "clamped", "SQUARED": kind == "squared"}
        constants = {**kinds, "COLUMNS": BLOCK}
        yield case(f"gate {kind}", gate_rows, {**fixed, **clamps}, constants, 4)
    for width in (4096,) if subset else (576, 4096, 16384):
        for residual in (True,) if subset else (False, True):
            constants = {"HAS_RESIDUAL": residual, "BLOCK": 1 << (width - 1).bit_length()}
            name = f"{'add_' if residual else ''}rms_norm {width}"
            yield case(name, norm_rows, fixed, constants, elementwise_warps(width))
    edits = {"counts_ptr": "*i16", **{f"{n}_ptr": "*i32" for n in ("count_rows", "drafted", "bias_rows", "lists")}}
    edits |= {f"{n}_ptr": "*fp32" for n in ("repetition", "presence", "frequency", "biases", "chosen", "top_values")}
    edits |= {f"{n}_ptr": "*fp32" for n in ("masses", "raw_tops", "raw_masses")}
    wide = {f"{n}_ptr": "*i64" for n in ("positions", "out", "token_ids", "top_ids")}
    walked = {f"{n}_ptr": "*i32" for n in ("states", "automaton_ids", "mask_rows", "table", "ends", "token_offsets")}
    walked |= {"token_ids_ptr": "*i64", "classes_ptr": "*u8", "token_bytes_ptr": "*u8"}
    yield case("advance automata", walk_tokens, walked, {"LANES": LANES}, 1)
    for element in ("fp32",) if subset else ("bf16", "fp16", "fp32"):
        types = {**fixed, **edits, **wide, "logits_ptr": f"*{element}"}
        passes = {"scores": (True, False, False)}
        if not subset:
            passes |= {"edited": (True, False, True), "log-probabilities": (True, True, False)}
            yield case(f"sample report {element}", report_logprobs, types, {"BLOCK": 1024}, 4)
        for name, parts in passes.items():
            constants = dict(zip(("HAS_SCORES", "HAS_RAW", "EDITED"), parts, strict=True))
            yield case(f"sample pass {element} {name}", summarise_groups, types, constants, NUM_WARPS)
        for is_edited in (False,) if subset else (False, True):
            for block in (1024,) if subset else (1024, 2048, 4096):  # 4096: more than 262,144 tokens, as Gemma 3 has
                constants = {"BLOCK": block, "EDITED": is_edited}
                name = f"sample choose {element} of {block} groups edited={is_edited}"
                chosen = case(name, choose_tokens, types, constants, NUM_WARPS)
                yield replace(chosen, max_registers=most_registers(NUM_WARPS))


def recurrent_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.triton.recurrent import (
        CHANNELS,
        CONVOLUTION_REGISTERS,
        ROWS,
        convolve_rows,
        step_channels,
        step_heads,
        values_of,
    )

    fixed = {"weight_ptr": "*fp32", "bias_ptr": "*fp32", "states_ptr": "*fp32", "segments_ptr": "*i64"}
    for element, width, silu in [("bf16", 4, True), ("bf16", 3, False), ("fp32", 4, True)][: 1 if subset else 3]:
        constants = {"WIDTH": width, "HAS_BIAS": not silu, "HAS_SILU": silu, "ROWS": ROWS, "CHANNELS": CHANNELS}
        types = argument_types(convolve_rows, element, fixed, constants)
        name = f"convolution {element} of {width}"
        yield Case(name, convolve_rows, types, constants, max_registers=CONVOLUTION_REGISTERS)
    fixed |= {"rate_ptr": "*fp32", "step_bias_ptr": "*fp32", "skip_ptr": "*fp32"}
    fixed |= {"q_scale": "fp32", "least": "fp32", "most": "fp32"}
    delta, by_key, space = (True, False), (True, True), (False, False)
    for element, key_dim, (is_delta, has_rates) in [
        ("bf16", 128, delta),
        ("bf16", 128, by_key),
        ("bf16", 128, space),
        ("fp32", 256, space),
    ]:
        if subset and element == "fp32":
            continue
        constants = {"IS_DELTA": is_delta, "BY_KEY": has_rates, "KEYS": key_dim, "VALUES": values_of(key_dim)}
        types = argument_types(step_heads, element, fixed, constants)
        name = "delta rule, by key" if has_rates else "delta rule" if is_delta else "state space"
        yield Case(f"{name} {element} D{key_dim}", step_heads, types, constants)

    for element in ["bf16", "fp32"][: 1 if subset else 2]:
        constants = {"STATE": 16, "CHANNELS": CHANNELS}
        types = argument_types(step_channels, element, fixed, constants)
        yield Case(f"selective scan {element} S16", step_channels, types, constants)


def all_cases(subset: bool) -> list[Case]:
    groups = (
        attention_cases,
        latent_cases,
        expert_cases,
        route_cases,
        mxfp4_cases,
        linear_cases,
        grouped_cases,
        int8_cases,
        lora_cases,
        other_cases,
        recurrent_cases,
    )
    return list(chain(*(cases(subset) for cases in groups)))
