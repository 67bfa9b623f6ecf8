"""Time to first token over the turns of a chat: what stays flat, what cannot, and what others take.

    python bench/multi_turn.py [--shape nano] [--turns 20] [--chats 3] [--message 60] [--reply 60]
    python bench/multi_turn.py --shape llama-1b --chats 1 --message 12 --reply 12

Each turn of each chat is answered by four, one after the other on the same core; per turn, medians over the chats, in
milliseconds of CPU time:

    phloem        the replies spliced in as the tokens that were generated, in parts: `render` (template, splice,
                  tokenise), `schedule` (check, match, lease, plan) and `layers` (all else in the step, which is
                  one compiled call but for the last layer). `floor` is what the attention's multiplications would
                  take at the peak of a large matrix product, measured in the same run: new tokens attend to all of
                  the history, so this part of `layers` cannot be flat.
    cold          the same engine without a prefix cache
    transformers  its own model with its own cache, kept from turn to turn: only the new ids are computed, and it is
                  given these

"hit" is the share of earlier tokens found in the cache (all but the last: its KV is never needed before); "anew" is
what would be found if replies were tokenised anew, as a server does that keeps text only. Replies are sampled warmly,
so their spelling is not always the tokenizer's.

Shapes besides `nano` are random checkpoints with the layers of a real model (SmolLM-135M, Llama-3.2-1B) but fewer of
them (matrices and attention keep their proportion) and with nano's vocabulary.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch

import phloem as ph
from phloem.radix import common_prefix, pack
from phloem.runtime.models import resolve_model

NUM_LAYERS = 4
SHAPES = {
    "smollm-135m": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
    },
    "llama-1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
    },
}
WORDS = ["block", "tree", "radix", "token", "prefix", "cache", "lease", "evict", "model", "city", "person", "ticket"]


@dataclass
class Turn:
    """Tokens, milliseconds, shares."""

    history: float
    new: float
    render: float
    schedule: float
    layers: float
    floor: float
    ttft: float
    hit: float
    anew: float
    cold: float
    transformers: float


class Timer:
    """Adds up the milliseconds of CPU time that calls of one function take."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner, self._name, self._function = owner, name, getattr(owner, name)
        self.spent = 0.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return self._function(*args, **kwargs)
        finally:
            self.spent += 1000 * (time.process_time() - start)

    def __enter__(self) -> Timer:
        setattr(self._owner, self._name, self)
        return self

    def __exit__(self, *_: object) -> None:
        setattr(self._owner, self._name, self._function)


class Peer:
    """transformers' model and its cache of one conversation."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache: Any = None
        self._num_known = 0

    def extend(self, token_ids: list[int]) -> float:
        """Milliseconds until the logits after the last token are there."""
        new = torch.tensor([token_ids[self._num_known :]])
        start = time.process_time()
        with torch.inference_mode():
            done = self._model(new, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        self._cache, self._num_known = done.past_key_values, len(token_ids)
        return 1000 * (time.process_time() - start)


def hold(warm: ph.Engine, cold: ph.Engine, model: Any, options: argparse.Namespace, seed: int) -> list[Turn]:
    """One chat."""
    random = Random(seed)
    messages: list[dict[str, str]] = [{"role": "system", "content": "Answer briefly."}]
    peer = Peer(model)
    earlier: list[int] = []
    turns = []
    for _ in range(options.turns):
        words = " ".join(random.choice(WORDS) for _ in range(options.message // 3))
        messages.append({"role": "user", "content": words})
        params = ph.SamplingParams(max_tokens=options.reply, temperature=1.2, seed=random.getrandbits(32))
        with Timer(warm.core._scheduler, "plan") as plan:
            times = [time.process_time()]
            chat = warm.encode_chat(messages, namespace=str(seed))
            times.append(time.process_time())
            prepared = warm.core.prepare(chat.token_ids, params, conversation=chat.text, namespace=str(seed))
            times.append(time.process_time())
            warm.core.enqueue(prepared)
            deltas = first_deltas(warm)
            times.append(time.process_time())
            render, prepare, step = (1000 * (after - before) for before, after in itertools.pairwise(times))
            parts = (render, prepare + plan.spent, step - plan.spent)
        while warm.core.has_work:
            deltas += warm.core.step()
        ids, said = list(chat.token_ids), [token for delta in deltas for token in delta.token_ids]
        cached = deltas[0].usage.cached_tokens
        most = max(len(earlier) - 1, 1)
        anew = common_prefix(pack(warm.tokenizer.apply_chat_template(messages)), pack(earlier)) >> 2
        start = time.process_time()
        cold.core.enqueue(cold.core.prepare(ids, ph.SamplingParams(max_tokens=1)))
        first_deltas(cold)
        turns.append(
            Turn(
                history=cached,
                new=len(ids) - cached,
                render=parts[0],
                schedule=parts[1],
                layers=parts[2],
                floor=attention_flops(warm, cached, len(ids)) / options.peak * 1000,
                ttft=sum(parts),
                hit=100 * min(cached / most, 1.0) if earlier else 100.0,
                anew=100 * min(anew / most, 1.0) if earlier else 100.0,
                cold=1000 * (time.process_time() - start),
                transformers=peer.extend(ids),
            )
        )
        earlier = ids + said[: len(said) - (said[-1] in warm.tokenizer.eos_ids)]
        if len(earlier) - 1 > len(ids):
            peer.extend(earlier[:-1])  # what it would have computed itself while it answered
        messages.append({"role": "assistant", "content": "".join(delta.text for delta in deltas)})
    return turns


def first_deltas(engine: ph.Engine) -> list[Any]:
    deltas = engine.core.step()
    while not deltas:
        deltas = engine.core.step()
    return deltas


def attention_flops(engine: ph.Engine, start: int, end: int) -> float:
    """Two products per query, key, head and layer."""
    model = engine.model_config
    keys = (start + 1 + end) * (end - start) / 2
    return 4.0 * model.num_layers * model.num_heads * model.head_dim * keys


def measured_peak() -> float:
    """FLOP per second of CPU time, of a product of large matrices."""
    size, best = 768, float("inf")
    left, right = torch.rand(size, size), torch.rand(size, size)
    for _ in range(20):
        start = time.process_time()
        torch.mm(left, right)
        best = min(best, time.process_time() - start)
    return float(2 * size**3 / best)


def checkpoint(shape: str, folder: Path, make: Callable[[dict[str, Any]], Any]) -> Path:
    """The bundled model, or a random one with its tokenizer."""
    nano = resolve_model("nano")
    if shape == "nano":
        return nano
    shutil.copytree(nano, folder, dirs_exist_ok=True)
    (folder / "model.safetensors").unlink()
    vocabulary = {"vocab_size": 1280, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": [6, 2]}
    lengths = {"num_hidden_layers": NUM_LAYERS, "max_position_embeddings": 8192}
    torch.manual_seed(0)
    make({**SHAPES[shape], **vocabulary, **lengths}).save_pretrained(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["nano", *SHAPES], default="nano")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--chats", type=int, default=3)
    parser.add_argument("--message", type=int, default=60, help="tokens of a user's message, about")
    parser.add_argument("--reply", type=int, default=60, help="tokens of a reply, at most")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options.peak = measured_peak()
    with tempfile.TemporaryDirectory() as name:
        folder = checkpoint(
            options.shape,
            Path(name),
            lambda shape: transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)),
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        settings: dict[str, Any] = {"num_threads": 1, "num_blocks": 1024, "dtype": "float32"}
        warm = ph.Engine(str(folder), **settings)
        cold = ph.Engine(str(folder), prefix_cache=False, **settings)
        short = argparse.Namespace(**{**vars(options), "turns": 3})
        hold(warm, cold, model, short, -1)
        chats = [hold(warm, cold, model, options, seed) for seed in range(options.chats)]
    print(f"{options.shape}; peak {options.peak / 1e9:.0f} GFLOP/s")
    report([Turn(*map(statistics.median, zip(*map(astuple, turn), strict=True))) for turn in zip(*chats, strict=True)])
    if min(turn.hit for chat in chats for turn in chat) < 100:
        raise SystemExit("a turn computed something twice")


def report(turns: list[Turn]) -> None:
    names = list(Turn.__annotations__)
    print("| turn | " + " | ".join(names) + " |")
    print("|--:|" + "--:|" * len(names))
    stride = max(1, len(turns) // 7)
    for number, turn in enumerate(turns):
        if number < 2 or number % stride == stride - 1 or number == len(turns) - 1:
            history, new, *others = astuple(turn)
            print(f"| {number + 1} | {history:.0f} | {new:.0f} | " + " | ".join(f"{one:.2f}" for one in others) + " |")
    # The first turn has nothing to splice and nothing to match.
    few = max(2, len(turns) // 5)
    early, late = turns[1 : 1 + few], turns[-few:]
    for part in ("render", "schedule", "layers", "ttft", "cold", "transformers"):
        first, last = (statistics.median(getattr(turn, part) for turn in some) for some in (early, late))
        print(f"{part}: {first:.2f} ms in turns 2 to {1 + few}, {last:.2f} ms in the last {few} ({last / first:.2f} x)")


if __name__ == "__main__":
    main()
