"""Trains the bundled model from scratch on text that it generates, within a budget of minutes.

    python scripts/train_nano.py --minutes 75 --out runtime/assets/nano

Muon for the matrices of the layers, Adam for the embedding and the norms. The learning rate follows the clock, not a
step count: it rises for 2 % of the budget, stays, and falls to zero over the rest, so that a busy machine ends with a
shorter training and never with an unfinished one. Several worker processes (``--workers``) of one thread each train
copies of their own on text of their own, and every few seconds all copies become their mean (local SGD, Stich 2018,
arXiv:1805.09767): unlike the mean of every step's gradients, this does not make all wait for the slowest at each step.
A checkpoint in Hugging Face layout is written every few minutes, each with a line of
scores on fresh documents: the share of answers whose every token the model ranks first (for greedy decoding this is
exactly the share of right answers).
"""

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import sentencepiece
import torch
from nano_chat import DESKS, Message, conversation, plain_text
from nano_model import Decoder, Muon, Shape
from nano_text import KINDS, SYSTEM_PROMPT, documents
from nano_tokenizer import END, train_tokenizer, write_tokenizer
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides a training but the machine's speed."""

    minutes: float
    seed: int = 1
    workers: int = 1
    vocab_size: int = 1280
    hidden_size: int = 192
    intermediate_size: int = 192
    num_layers: int = 4
    num_heads: int = 6
    num_kv_heads: int = 2
    row_len: int = 256
    num_rows: int = 4  # of one worker's step
    matrix_rate: float = 0.008
    vector_rate: float = 6e-3
    decay_from: float = 0.2  # share of the budget after which the rates fall
    short_until: float = 0.12  # share of the budget spent on rows of half the length
    long_every: int = 8  # one of this many later steps has rows of four times the length
    prompt_weight: float = 0.1  # of the loss on what the model only reads; 1 on what it says
    average_seconds: float = 2.0  # between two means of the workers' weights
    report_minutes: float = 4.0
    begin_at: float = 0.0  # progress at the start; 0.1 skips the beginning of the curriculum (with --start)
    num_scored: int = 48  # documents per report
    compiled: bool = False  # needs a C++ compiler; a quarter faster

    def shape(self) -> Shape:
        """The sizes of the decoder."""
        return Shape(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            intermediate_size=self.intermediate_size,
        )


class Encoder:
    """Messages to token ids in the chat template's layout."""

    def __init__(self, model: bytes, prompt_weight: float) -> None:
        self.prompt_weight = prompt_weight
        self.pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.bos_id: int = self.pieces.bos_id()
        self.end_id: int = self.pieces.piece_to_id(END)

    def message(self, role: str, text: str) -> list[int]:
        """Marker, text, end."""
        return [self.pieces.piece_to_id(f"<|{role}|>"), *self.pieces.encode(text), self.end_id]

    def row(self, messages: Iterator[Message], row_len: int) -> tuple[list[int], list[float]]:
        """As many whole turns as fit into a row: token ids and the loss weight of each. Empty if not one fits."""
        token_ids, weights, kept = [self.bos_id], [0.0], 0
        for role, text in messages:
            ids = self.message(role, text)
            if len(token_ids) + len(ids) > row_len:
                break
            token_ids += ids
            said = role == "assistant"
            weights += [0.0] + [1.0 if said else self.prompt_weight] * (len(ids) - 1)
            kept = len(token_ids) if said else kept
        return token_ids[:kept], weights[:kept]

    def plain_row(self, texts: Iterator[str], row_len: int) -> tuple[list[int], list[float]]:
        """As many whole documents as fit, a blank line between them, without any marker."""
        token_ids = [self.bos_id]
        for text in texts:
            ids = self.pieces.encode(text + "\n\n")
            if len(token_ids) + len(ids) > row_len:
                break
            token_ids += ids
        return token_ids, [0.0] + [self.prompt_weight] * (len(token_ids) - 1)


def row_len_of(step: int, progress: float, recipe: Recipe) -> int:
    """The length of a step's rows: short at first, later long ones among the usual ones (all hold as many tokens)."""
    if progress < recipe.short_until:
        return recipe.row_len // 2
    return recipe.row_len * 4 if step % recipe.long_every == 0 else recipe.row_len


def batch(encoder: Encoder, rng: Random, row_len: int, num_tokens: int, progress: float) -> tuple[Tensor, Tensor]:
    """Fresh rows of ``num_tokens`` in all: token ids and weights, both [B, T]; short rows are padded with weight 0."""
    num_rows = max(1, num_tokens // row_len)
    token_ids = torch.full((num_rows, row_len), encoder.end_id)
    weights = torch.zeros(num_rows, row_len)
    row_index = 0
    while row_index < num_rows:
        if rng.random() < 0.03:
            ids, row_weights = encoder.plain_row(plain_text(rng), row_len)
        else:
            ids, row_weights = encoder.row(conversation(rng, row_len, progress), row_len)
        if len(ids) < row_len // 2:
            continue
        token_ids[row_index, : len(ids)] = torch.tensor(ids)
        weights[row_index, : len(ids)] = torch.tensor(row_weights)
        row_index += 1
    return token_ids, weights


def weighted_loss(model: Decoder, backbone: Callable[[Tensor], Tensor], token_ids: Tensor, weights: Tensor) -> Tensor:
    """Mean cross-entropy of the next token under the weights."""
    hidden, targets, target_weights = backbone(token_ids[:, :-1]), token_ids[:, 1:], weights[:, 1:]
    chosen = target_weights > 0
    losses = functional.cross_entropy(model.logits(hidden[chosen]), targets[chosen], reduction="none")
    return (losses * target_weights[chosen]).sum() / target_weights.sum()


# --- scores -----------------------------------------------------------------------------------------------------


def exchanges(seed: int, count: int) -> Iterator[tuple[str, list[Message], str]]:
    """Fresh (label, messages, right answer): JSON and one question per document, then questions at a desk."""
    rng = Random(seed)
    for document in documents(seed, count):
        system = ("system", SYSTEM_PROMPT)
        yield document.kind.name, [system, ("user", f"{document.text}\n\n{document.extraction()}")], document.json
        question, answer = document.questions(rng)[0]
        yield f"{document.kind.name}?", [system, ("user", f"{document.text}\n\n{question}")], answer
    for index in range(count // 2):
        facts, pairs = DESKS[index % len(DESKS)](rng, 5)
        question, answer = rng.choice(pairs)
        yield f"{DESKS[index % len(DESKS)].__name__}?", [("system", facts), ("user", question)], answer


@torch.no_grad()
def scores(model: Decoder, encoder: Encoder, seed: int, count: int) -> tuple[dict[str, float], dict[str, int]]:
    """Share of wholly right answers per label, and the commonest places of the first error (text before it)."""
    right: dict[str, list[bool]] = defaultdict(list)
    misses: dict[str, int] = defaultdict(int)
    for label, messages, answer in exchanges(seed, count):
        prompt = [encoder.bos_id, *(i for role, text in messages for i in encoder.message(role, text))]
        said = encoder.message("assistant", answer)
        ids = torch.tensor([prompt + said])
        guesses = model(ids[:, :-1])[0].argmax(-1)[-len(said) + 1 :].tolist()
        right[label].append(guesses == said[1:])
        if guesses != said[1:]:
            place = next(i for i, (a, b) in enumerate(zip(guesses, said[1:], strict=True)) if a != b)
            before = encoder.pieces.decode(said[1 : place + 1])
            field = before.rsplit('":', 1)[0].rsplit('"', 1)[-1] if '":' in before else ""
            misses[f"{label}.{field}"] += 1
    shares = {label: sum(rights) / len(rights) for label, rights in right.items()}
    return shares, dict(sorted(misses.items(), key=lambda item: -item[1])[:12])


def summary(shares: dict[str, float]) -> str:
    """One line: JSON, questions on documents, questions at desks, then each label."""

    def mean(labels: list[str]) -> float:
        return sum(shares[label] for label in labels) / max(1, len(labels))

    extraction = mean([label for label in shares if label in KINDS])
    reading = mean([label for label in shares if label.rstrip("?") in KINDS and label.endswith("?")])
    desks = mean([label for label in shares if label.rstrip("?") not in KINDS])
    each = " ".join(f"{label} {share:.2f}" for label, share in shares.items())
    return f"json {extraction:.3f} questions {reading:.3f} desks {desks:.3f} | {each}"


# --- training ---------------------------------------------------------------------------------------------------


def rate(progress: float, decay_from: float) -> float:
    """The learning rate's share of its peak at a share of the budget."""
    return min(1.0, progress / 0.02, max(0.0, (1 - progress) / (1 - decay_from)))


def write_checkpoint(folder: Path, model: Decoder, encoder: Encoder, tokenizer: bytes) -> None:
    """Writes the whole Hugging Face folder; the weights last and in one move, so that a reader sees whole files."""
    folder.mkdir(parents=True, exist_ok=True)
    eos_ids = [encoder.end_id, encoder.pieces.eos_id()]
    config = model.shape.hugging_face(encoder.bos_id, eos_ids)
    generation = {"bos_token_id": encoder.bos_id, "eos_token_id": eos_ids, "do_sample": False}
    generation["json_whitespace"] = "compact"  # as `nano_text` writes it
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    write_tokenizer(folder, tokenizer, model.shape.max_positions)
    weights = {name: weight.detach().to(torch.bfloat16).contiguous() for name, weight in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors.new", metadata={"format": "pt"})
    (folder / "model.safetensors.new").chmod(0o644)
    os.replace(folder / "model.safetensors.new", folder / "model.safetensors")


def train(recipe: Recipe, out: Path, source: Path | None = None, rank: int = 0) -> list[float]:
    """Trains one worker's copy, from scratch or from the checkpoint ``source``; rank 0 reports and writes.

    Returns the losses (of this worker's rows).
    """
    torch.manual_seed(recipe.seed)
    tokenizer = (source / "tokenizer.model").read_bytes() if source else train_tokenizer(recipe.vocab_size, recipe.seed)
    encoder = Encoder(tokenizer, recipe.prompt_weight)
    model = Decoder(recipe.shape())
    if source:
        model.load_state_dict(load_file(source / "model.safetensors"))
    backbone = torch.compile(model.model) if recipe.compiled else model.model
    weights = dict(model.named_parameters())
    muon = Muon(weight for name, weight in weights.items() if weight.ndim == 2 and "embed" not in name)
    others = [weight for name, weight in weights.items() if weight.ndim == 1 or "embed" in name]
    adam = torch.optim.Adam(others, betas=(0.9, 0.98))
    rng = Random(recipe.seed * 1000 + rank)
    if rank == 0:
        print(f"recipe {json.dumps(asdict(recipe))}")
        print(f"parameters {sum(weight.numel() for weight in weights.values())}", flush=True)
    losses: list[float] = []
    progress = recipe.begin_at
    start = average_at = report_at = time.monotonic()
    while progress < 1.0 or time.monotonic() < average_at:
        row_len = row_len_of(len(losses), progress, recipe)
        token_ids, token_weights = batch(encoder, rng, row_len, recipe.num_rows * recipe.row_len, progress)
        loss = weighted_loss(model, backbone, token_ids, token_weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        muon.learning_rate = recipe.matrix_rate * rate(progress, recipe.decay_from)
        adam.param_groups[0]["lr"] = recipe.vector_rate * rate(progress, recipe.decay_from)
        muon.step()
        adam.step()
        model.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if time.monotonic() < average_at:
            continue
        progress = recipe.begin_at + (1 - recipe.begin_at) * (time.monotonic() - start) / (60 * recipe.minutes)
        if recipe.workers > 1:
            progress = average(list(weights.values()), progress)
        average_at = time.monotonic() + recipe.average_seconds if progress < 1.0 else 0.0
        if rank == 0 and (time.monotonic() - report_at > 60 * recipe.report_minutes or progress >= 1.0):
            report_at = time.monotonic()
            report(model, encoder, losses, (report_at - start) / 60, recipe)
            write_checkpoint(out, model, encoder, tokenizer)
    return losses


def report(model: Decoder, encoder: Encoder, losses: list[float], minutes: float, recipe: Recipe) -> None:
    """Prints where the training stands. Tokens are counted as if all workers were as fast as this one."""
    num_tokens = len(losses) * recipe.num_rows * recipe.row_len * recipe.workers
    shares, misses = scores(model, encoder, seed=90000 + len(losses), count=recipe.num_scored)
    recent = sum(losses[-200:]) / len(losses[-200:])
    print(f"{minutes:.1f} min, step {len(losses)}, {num_tokens / 1e6:.2f} M tokens, loss {recent:.4f}")
    print(f"  {summary(shares)}\n  first errors: {misses}", flush=True)


@torch.no_grad()
def average(weights: list[torch.nn.Parameter], progress: float) -> float:
    """Replaces the weights by the workers' mean; returns rank 0's progress, so that all stop together."""
    flat = torch.cat([*(weight.flatten() for weight in weights), torch.zeros(1)])
    flat[-1] = progress if distributed.get_rank() == 0 else 0.0
    distributed.all_reduce(flat)
    num_workers = distributed.get_world_size()
    offset = 0
    for weight in weights:
        weight.copy_(flat[offset : offset + weight.numel()].view_as(weight) / num_workers)
        offset += weight.numel()
    return float(flat[-1])


def work(rank: int, recipe: Recipe, out: Path, start: Path | None, port: int) -> None:
    """The body of one worker process."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=recipe.workers)
    train(recipe, out, start, rank)
    distributed.destroy_process_group()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--start", type=Path, help="folder of a checkpoint (same shape) to start from")
    parser.add_argument("--port", type=int, default=29517, help="local port on which the workers meet")
    for name, field in Recipe.__dataclass_fields__.items():
        if field.type is bool:
            parser.add_argument("--" + name.replace("_", "-"), action="store_true")
            continue
        kind = field.type
        default = 1.0 if name == "minutes" else field.default
        parser.add_argument("--" + name.replace("_", "-"), type=kind, default=default)
    options = vars(parser.parse_args())
    out, start, port = options.pop("out"), options.pop("start"), options.pop("port")
    recipe = Recipe(**options)
    if recipe.workers == 1:
        train(recipe, out, start)
    else:
        torch.multiprocessing.spawn(work, (recipe, out, start, port), nprocs=recipe.workers)


if __name__ == "__main__":
    main()
