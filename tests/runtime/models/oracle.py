"""The oracle of decoders: random checkpoints that transformers makes and computes, and a paged run beside it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from phloem.kernels import ops
from phloem.kernels.state_rounds import ZEROS, StateRounds, plan_states
from phloem.runtime.execute.recurrent_states import RecurrentStates
from phloem.runtime.models import Decoder
from phloem.runtime.models.step import StateStep

from .decoder_shapes import SMALL

# classes of models that transformers does not have, by name: as its own are made, with `config_class`
OWN_CLASSES: dict[str, Any] = {}


@dataclass(frozen=True)
class Oracle:
    folder: Path
    model: Any

    def logits(self, token_ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            result: torch.Tensor = self.model(torch.tensor([token_ids])).logits[0]
        return result

    def logits_and_bound(self, token_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """`[T, V]`, and how far apart two orders of fp32 sums may bring those of each row, `[T, 1]`.

        Rounding in a sum of n products is the same as exact sums of operands that are off by n eps at most (Higham,
        Accuracy and Stability of Numerical Algorithms, section 3.1). What the model makes of that is measured: all of
        its weights are moved by a small share, up or down at random, and the change is scaled.
        """
        return result_and_bound(lambda: self.logits(token_ids), list(self.model.parameters()), len(token_ids))

    def assert_logits(self, found: torch.Tensor, token_ids: list[int], rows: slice = slice(None)) -> None:
        """`found` are the logits of these rows, but for rounding."""
        expected, bound = (each[rows] for each in self.logits_and_bound(token_ids))
        assert found.shape == expected.shape
        most = float(((found - expected).abs() / bound).max())
        assert most <= 1.0, f"{most:.3g} times as far off as rounding explains"

    def assert_greedy(self, prompt: list[int], answer: list[int]) -> None:
        """Every token of the answer is the likeliest after those before it.

        Where two are equally likely but for rounding, either is right: which comes out depends on the order of sums.
        """
        logits, bound = (each[len(prompt) - 1 :] for each in self.logits_and_bound([*prompt, *answer[:-1]]))
        assert_likeliest(logits, answer, bound[:, 0])

    def assert_decoder(self, decoder: Decoder) -> None:
        """The same logits, through chunks of all kinds, and the same greedy text, but for rounding."""
        token_ids, run = random_ids(60), PagedRun(decoder)
        chunks = [token_ids[:1], token_ids[1:20], token_ids[20:53], *([token] for token in token_ids[53:])]
        self.assert_logits(torch.cat([run.extend({0: chunk}) for chunk in chunks]), token_ids)
        self.assert_greedy(token_ids[:30], PagedRun(decoder).greedy(token_ids[:30], 24))


def result_and_bound(
    compute: Callable[[], torch.Tensor], parameters: list[torch.Tensor], num_tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """`[T, V]`, and the bound of each row, as `Oracle.logits_and_bound` says."""
    expected, share, depth = compute(), 2.0**-14, num_tokens
    source, kept = torch.Generator().manual_seed(1), []
    with torch.no_grad():
        for parameter in parameters:
            kept.append(parameter.clone())
            depth = max(depth, parameter.shape[-1])
            parameter *= 1 + share * (2 * torch.randint(2, parameter.shape, generator=source) - 1)
        moved = compute()
        for parameter, before in zip(parameters, kept, strict=True):
            parameter.copy_(before)
    change = (moved - expected).abs().amax(-1, keepdim=True)
    return expected, change * (depth * torch.finfo(torch.float32).eps / share)


def assert_likeliest(logits: torch.Tensor, answer: list[int], bound: torch.Tensor) -> None:
    """`answer[i]` has the largest logit of row i, each of which may be off by `bound[i]`."""
    chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
    assert (logits.amax(1) - chosen <= 2 * bound).all()


def save_random_model(folder: Path, class_name: str, options: dict[str, Any], **saving: Any) -> Any:
    """A checkpoint of transformers' own making, with every parameter random, norms and biases too."""
    with warnings.catch_warnings():
        # transformers and the libraries it probes for warn of their own deprecations on import
        warnings.simplefilter("ignore")
        import transformers
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(sum(map(ord, class_name + str(options))))
    model_class = OWN_CLASSES.get(class_name) or getattr(transformers, class_name)
    config = model_class.config_class(**{**SMALL, **options})
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name
            parameter.normal_(mean=float(is_norm and not has_norm_offset(config.model_type)), std=0.25)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.uniform_(0.5, 1.5)
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(std=0.25)
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder, **saving)
    return model


def has_norm_offset(model_type: str) -> bool:
    """Whether a model adds one to the weights of its norms."""
    return "gemma" in model_type and "gemma4" not in model_type


class PagedRun:
    """Sequences over one paged cache, with block tables in random order: what an engine does, by hand."""

    def __init__(self, decoder: Decoder, num_sequences: int = 1, block_size: int = 4, max_len: int = 192) -> None:
        config = decoder.config
        blocks_each = -(-max_len // block_size)
        num_blocks = num_sequences * blocks_each
        shapes = [(num_blocks, kept.num_heads, block_size, kept.head_dim) for kept in config.kv_shapes()]
        order = np.random.default_rng(7).permutation(num_blocks).astype(np.int32)
        self.decoder, self.block_size = decoder, block_size
        # garbage in unwritten slots must not show
        self.keys = [torch.full(shape, 1e4, dtype=decoder.dtype) for shape in shapes]
        self.values = [torch.full(shape, 1e4, dtype=decoder.dtype) for shape in shapes]
        self.key_scales = self.value_scales = [None] * config.num_kv_layers
        self.states = self.hidden = None
        if config.recurrent is not None:
            self.states = RecurrentStates(config, 2 * num_sequences, torch.device("cpu"))
            for tensor in chain.from_iterable(self.states.layers):
                tensor.fill_(1e4)
        self.slots = [ZEROS] * num_sequences  # of the states of sequences, which go back and forth
        self.tables = order.reshape(num_sequences, blocks_each)
        self.lens = [0] * num_sequences

    def extend(self, chunks: dict[int, list[int]], rows: list[int] | None = None) -> torch.Tensor:
        """Appends each sequence's chunk in one step; logits of `rows` (None: all)."""
        config, sequences = self.decoder.config, list(chunks)
        positions = [np.arange(self.lens[s], self.lens[s] + len(chunks[s])) for s in sequences]
        slots = [
            self.tables[s][p // self.block_size] * self.block_size + p % self.block_size
            for s, p in zip(sequences, positions, strict=True)
        ]
        for s in sequences:
            self.lens[s] += len(chunks[s])
        states = {}
        if self.states is not None:
            states["recurrent"] = StateStep(self.states.layers, self._rounds(chunks))
        plan = ops.plan_attention(
            np.cumsum([0, *(len(chunks[s]) for s in sequences)], dtype=np.int32),
            np.array([self.lens[s] for s in sequences], dtype=np.int32),
            self.tables[sequences],
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=self.block_size,
            device="cpu",
        )
        return self.decoder.forward(
            torch.tensor([t for s in sequences for t in chunks[s]]),
            torch.from_numpy(np.concatenate(positions)).long(),
            self,
            plan,
            torch.from_numpy(np.concatenate(slots)).long(),
            None if rows is None else torch.tensor(rows, dtype=torch.long),
            **states,
        )

    def _rounds(self, chunks: dict[int, list[int]]) -> StateRounds:
        segments, end = [], 0
        for s, chunk in chunks.items():
            written = 2 * s + (self.slots[s] + 1) % 2
            segments.append([end, end + len(chunk), self.slots[s], written])
            self.slots[s], end = written, end + len(chunk)
        return plan_states([np.array(segments, np.int64)], torch.device("cpu"))

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        self.extend({0: prompt[:5]}, rows=[])
        logits = self.extend({0: prompt[5:]}, rows=[len(prompt) - 6])
        answer = [int(logits[0].argmax())]
        while len(answer) < num_tokens:
            answer.append(int(self.extend({0: answer[-1:]})[0].argmax()))
        return answer


def random_ids(num_tokens: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, SMALL["vocab_size"], num_tokens)]
