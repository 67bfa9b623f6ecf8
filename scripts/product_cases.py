"""Which kernels of matrix products are compiled, and in which configurations: layers, experts, few bits, adapters."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_case import Case, argument_types


def expert_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.launch import experts_config
    from phloem.kernels.triton.experts import SUM_BLOCK, multiply_tiles, sum_choices

    ints = {"order_ptr": "*i32", "starts_ptr": "*i32", "tiles_ptr": "*i32"}
    shapes = (("bf16", 128, 8, False), ("bf16", 32, 4, True), ("fp16", 8, 2, False), ("fp32", 60, 4, True))
    for element, num_experts, num_chosen, has_bias in shapes[: 1 if subset else 4]:
        itemsize = 4 if element == "fp32" else 2
        configs = {experts_config(pairs, num_experts, itemsize, deterministic=False) for pairs in (1, 1 << 20)}
        for config in sorted(configs, key=lambda config: config.block_rows):
            for in_order in (True,) if subset else (True, False):
                constants = {
                    "NUM_CHOSEN": num_chosen,
                    "IN_ORDER": in_order,
                    "HAS_BIAS": has_bias,
                    "BLOCK_EXPERTS": 1 << (num_experts - 1).bit_length(),
                    "BLOCK_ROWS": config.block_rows,
                    "BLOCK_OUTPUTS": config.block_outputs,
                    "BLOCK_DEPTH": config.block_depth,
                    "STAGES": config.num_stages,
                }
                yield Case(
                    f"experts {element} {num_chosen} of {num_experts} rows{config.block_rows} "
                    f"{'gate, up' if in_order else 'down'}{' biases' if has_bias else ''}",
                    multiply_tiles,
                    argument_types(multiply_tiles, element, ints, constants),
                    constants,
                    config.num_warps,
                    config.num_stages,
                    (config.block_outputs, config.block_depth, itemsize),
                    frozenset({"num_experts"}),
                    tiles=1,
                    streamed="weights",
                )
        constants = {"NUM_CHOSEN": num_chosen, "COLUMNS": SUM_BLOCK}
        types = argument_types(sum_choices, element, {"shares_ptr": "*fp32"}, constants)
        yield Case(f"experts {element} sum of {num_chosen}", sum_choices, types, constants)


def mxfp4_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.launch import mxfp4_config
    from phloem.kernels.triton.mxfp4 import multiply_mxfp4_tiles

    fixed = {"order_ptr": "*i32", "starts_ptr": "*i32", "tiles_ptr": "*i32", "weight_ptr": "*u8", "scales_ptr": "*u8"}
    for num_experts in (32,) if subset else (32, 128):
        for num_pairs in (1,) if subset else (1, 1 << 20):
            config = mxfp4_config(num_pairs, num_experts, deterministic=False)
            for in_order in (True,) if subset else (True, False):
                constants = {
                    "NUM_CHOSEN": 4,
                    "IN_ORDER": in_order,
                    "HAS_BIAS": True,
                    "BLOCK_EXPERTS": num_experts,
                    "BLOCK_ROWS": config.block_rows,
                    "BLOCK_OUTPUTS": config.block_outputs,
                    "BLOCK_DEPTH": config.block_depth,
                    "STAGES": config.num_stages,
                }
                yield Case(
                    f"experts mxfp4 4 of {num_experts} rows{config.block_rows} {'gate, up' if in_order else 'down'}",
                    multiply_mxfp4_tiles,
                    argument_types(multiply_mxfp4_tiles, "bf16", fixed, constants),
                    constants,
                    config.num_warps,
                    config.num_stages,
                    (config.block_outputs, config.block_depth // 2, 1),
                    frozenset({"num_experts"}),
                    tiles=1,
                    streamed="weights",
                    looks_ahead=config.block_rows == 16,
                )


def linear_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.launch import linear_config, most_registers
    from phloem.kernels.triton.linear import FOLD_BLOCK, fold_splits, multiply_rows

    for element in ("bf16",) if subset else ("bf16", "fp16", "fp32"):
        itemsize = 4 if element == "fp32" else 2
        for num_rows in (1, 65):
            config = linear_config(num_rows, itemsize)
            constants = {
                "HAS_BIAS": num_rows > 1,
                "FOLDS": not config.splits,
                "BLOCK_ROWS": config.block_rows,
                "BLOCK_OUTPUTS": config.block_outputs,
                "BLOCK_DEPTH": config.block_depth,
                "STAGES": config.num_stages,
            }
            sums = "*fp32" if config.splits else f"*{element}"
            yield Case(
                f"linear {element} rows{config.block_rows} {'split' if config.splits else 'walks'}",
                multiply_rows,
                argument_types(multiply_rows, element, {"out_ptr": sums}, constants),
                constants,
                config.num_warps,
                config.num_stages,
                (config.block_outputs, config.block_depth, itemsize),
                max_registers=most_registers(config.num_warps),
                tiles=1,
                streamed="weights",
            )
        constants = {"HAS_BIAS": True, "COLUMNS": FOLD_BLOCK}
        types = argument_types(fold_splits, element, {"partial_ptr": "*fp32"}, constants)
        yield Case(f"linear {element} fold", fold_splits, types, constants)


def int8_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.launch import int8_config, int8_experts_config, most_registers
    from phloem.kernels.triton.int8 import COLUMNS, multiply_int8_rows, multiply_int8_tiles, quantise_rows

    few, many = (int8_experts_config(num_pairs, 128, deterministic=False) for num_pairs in (1, 1 << 20))
    for experts, in_order in ((few, True),) if subset else ((few, True), (few, False), (many, True)):
        constants = {
            "NUM_CHOSEN": 8,
            "IN_ORDER": in_order,
            "HAS_BIAS": False,
            "BLOCK_EXPERTS": 128,
            "BLOCK_ROWS": experts.block_rows,
            "BLOCK_OUTPUTS": experts.block_outputs,
            "BLOCK_DEPTH": experts.block_depth,
            "STAGES": experts.num_stages,
        }
        fixed = {"x_ptr": "*i8", "weight_ptr": "*i8", "scales_ptr": "*fp32", "steps_ptr": "*fp32"}
        fixed |= {"order_ptr": "*i32", "starts_ptr": "*i32", "tiles_ptr": "*i32"}
        yield Case(
            f"experts int8 by int8 rows{experts.block_rows} {'gate, up' if in_order else 'down'}",
            multiply_int8_tiles,
            argument_types(multiply_int8_tiles, "bf16", fixed, constants),
            constants,
            experts.num_warps,
            experts.num_stages,
            (experts.block_outputs, experts.block_depth, 1),
            frozenset({"num_experts"}),
            max_registers=most_registers(experts.num_warps),
            tiles=1,
            streamed="weights",
        )

    for num_rows in (1,) if subset else (1, 17, 65):
        config = int8_config(num_rows)
        constants = {
            "HAS_BIAS": not config.splits,
            "FOLDS": not config.splits,
            "BLOCK_ROWS": config.block_rows,
            "BLOCK_OUTPUTS": config.block_outputs,
            "BLOCK_DEPTH": config.block_depth,
            "STAGES": config.num_stages,
        }
        fixed = {"x_ptr": "*i8", "weight_ptr": "*i8", "scales_ptr": "*fp32", "steps_ptr": "*fp32"}
        sums = {"out_ptr": "*fp32"} if config.splits else {}
        yield Case(
            f"linear int8 by int8 rows{config.block_rows} {'split' if config.splits else 'walks'}",
            multiply_int8_rows,
            argument_types(multiply_int8_rows, "bf16", {**fixed, **sums}, constants),
            constants,
            config.num_warps,
            config.num_stages,
            (config.block_outputs, config.block_depth, 1),
            max_registers=most_registers(config.num_warps),
            tiles=1,
            streamed="weights",
        )
    for own in (True,) if subset else (True, False):
        constants = {"OWN_STEPS": own, "COLUMNS": COLUMNS}
        fixed = {"out_ptr": "*i8", "steps_ptr": "*fp32", "input_step": "fp32", "input_limit": "fp32"}
        types = argument_types(quantise_rows, "bf16", fixed, constants)
        yield Case(f"rows to int8, {'their own steps' if own else 'one step'}", quantise_rows, types, constants, 8)


def grouped_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels.launch import grouped_config, grouped_experts_config, most_registers
    from phloem.kernels.triton.grouped import multiply_grouped_rows, multiply_grouped_tiles

    shapes = [
        # element, step, zeros or offsets, activations
        ("int4", 128, "zeros", "bf16"),
        ("e4m3", 128, "", "bf16"),
        ("int4", 128, "zeros", "fp16"),
        ("int4", 64, "", "bf16"),
        ("int4", 32, "zeros", "bf16"),
        ("uint4", 32, "offsets", "bf16"),
        ("int8", 128, "", "bf16"),
        ("int8", 32, "zeros", "fp16"),
        ("int8", 32, "offsets", "bf16"),
        ("e4m3", 128, "", "fp16"),
    ]
    ints = {"order_ptr": "*i32", "starts_ptr": "*i32", "tiles_ptr": "*i32"}
    for element, step, extra, rows in shapes[:1] if subset else shapes:
        kept = {"weight_ptr": "*u8", "factors_ptr": "*i32"}
        common = {"ELEMENT": element, "BLOCK_DEPTH": step}
        common |= {"HAS_ZEROS": extra == "zeros", "HAS_OFFSETS": extra == "offsets"}
        tile_depth = step // 2 if element in ("int4", "uint4") else step
        configs = {
            grouped_config(num_rows, step, deterministic=det) for num_rows in (1, 64, 65) for det in (False, True)
        }
        ordered = sorted(configs, key=lambda config: (config.block_rows, not config.splits))
        for config in ordered[:1] if subset else ordered:
            constants = {
                **common,
                "HAS_BIAS": not config.splits,
                "FOLDS": not config.splits,
                "BLOCK_ROWS": config.block_rows,
                "BLOCK_OUTPUTS": config.block_outputs,
                "STAGES": config.num_stages,
            }
            sums = "*fp32" if config.splits else f"*{rows}"
            yield Case(
                f"linear {element} in {step}s, {rows}, rows{config.block_rows} {'split' if config.splits else 'walks'}",
                multiply_grouped_rows,
                argument_types(multiply_grouped_rows, rows, {**kept, "out_ptr": sums}, constants),
                constants,
                config.num_warps,
                config.num_stages,
                (config.block_outputs, tile_depth, 1),
                max_registers=most_registers(config.num_warps),
                tiles=1,
                streamed="weights",
            )
        few, many = (grouped_experts_config(num_pairs, 128, step, deterministic=False) for num_pairs in (1, 1 << 20))
        for experts, in_order in ((few, True),) if subset else ((few, True), (few, False), (many, True)):
            constants = {
                **common,
                "NUM_CHOSEN": 8,
                "IN_ORDER": in_order,
                "HAS_BIAS": False,
                "BLOCK_EXPERTS": 128,
                "BLOCK_ROWS": experts.block_rows,
                "BLOCK_OUTPUTS": experts.block_outputs,
                "STAGES": experts.num_stages,
            }
            yield Case(
                f"experts {element} in {step}s, {rows}, rows{experts.block_rows} {'gate, up' if in_order else 'down'}",
                multiply_grouped_tiles,
                argument_types(multiply_grouped_tiles, rows, {**kept, **ints}, constants),
                constants,
                experts.num_warps,
                experts.num_stages,
                (experts.block_outputs, tile_depth, 1),
                frozenset({"num_experts"}),
                max_registers=most_registers(experts.num_warps),
                tiles=1,
                streamed="weights",
            )


def lora_cases(subset: bool) -> Iterator[Case]:
    from phloem.kernels import lora
    from phloem.kernels.triton.lora import BLOCK_DEPTH, BLOCK_OUTPUTS, SPLIT_LEN, STAGES, expand_rows, shrink_rows

    columns = {name: getattr(lora, name) for name in lora.__dict__ if name.isupper()}
    tiles = {
        "ROWS": lora.TILE_ROWS,
        "RANKS": lora.RANK_STEP,
        "STAGES": STAGES,
        "NUM_COLUMNS": lora.COLUMNS,
        "IS_ALIGNED": True,
    }
    own = {"SPLIT_LEN": SPLIT_LEN, "BLOCK_DEPTH": BLOCK_DEPTH, "BLOCK_OUTPUTS": BLOCK_OUTPUTS}
    fixed = {"tiles_ptr": "*i64", "partial_ptr": "*fp32"}
    for element in ("bf16",) if subset else ("bf16", "fp16", "fp32"):
        for kernel in (shrink_rows, expand_rows):
            constants = {name: value for name, value in {**columns, **tiles, **own}.items() if name in kernel.arg_names}
            name = f"lora {element} {kernel.__name__.removesuffix('_rows')}"
            types = argument_types(kernel, element, fixed, constants)
            itemsize = 4 if element == "fp32" else 2
            tile = (lora.RANK_STEP, BLOCK_DEPTH, itemsize) if kernel is shrink_rows else None
            yield Case(name, kernel, types, constants, 4, STAGES, tile, streamed="inputs and weights")
