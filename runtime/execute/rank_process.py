"""What runs in the process of a rank other than the first: it loads its part, and computes what rank 0 tells it to.

It has no requests, no scheduler and no sampler: a step comes as arrays (`step_message`), a copy of blocks as their ids.
It ends when it is told to, when rank 0 is gone (its lifeline closes), or after a fault of its own, which it reports.
Ctrl-C is for rank 0 alone.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from ... import __version__
from ...errors import ConfigError, ModelError
from ..config import EngineConfig
from ..device import on_device
from ..models import Adapter
from ..parallel.message import Array, Channel, Message
from ..parallel.process_group import check_backend, join
from ..parallel.rank_processes import LEFT
from ..parallel.ranks import RankLost, Ranks
from .adapters import load_adapter
from .kv_cache import KVCache
from .leading_tensors import STATES
from .loading import LoadedPart, load_part
from .model_runner import ModelRunner
from .pool import pool_tensors
from .recurrent_states import RecurrentStates
from .runner_setup import make_runner
from .step_message import batch_of
from .warmup_batches import WarmupBatches
from .window_kv import WindowKV


def main(told: Mapping[str, Any]) -> None:
    """Does what rank 0 says until the end. told: see `rank_processes`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lifeline = socket.socket(fileno=told["lifeline"])
    threading.Thread(target=_live, args=(lifeline,), daemon=True).start()
    channel = Channel(socket.socket(fileno=told["channel"]))
    try:
        channel.send(Message("hello", {"versions": [__version__, torch.__version__]}).packed())
        with torch.inference_mode():
            ranks = Ranks(told["rank"], told["size"], in_order=told["in_order"])
            _RankProcess(channel, ranks, torch.device(told["device"])).run()
        status = 0
    except EOFError:
        status = LEFT
    except BaseException as error:
        with suppress(OSError):
            channel.send(Message("fault", {"text": f"{type(error).__name__}: {error}"}).packed(), 1.0)
        status = 1
    sys.stdout.flush()
    os._exit(status)  # threads of torch's groups may wait for ranks that are gone


def _live(lifeline: socket.socket) -> None:
    """Sends back what comes; the process ends with the lifeline."""
    with suppress(OSError):
        while sent := lifeline.recv(16):
            lifeline.send(sent)
    os._exit(LEFT)


class _RankProcess:
    """One rank; `_do_<kind>` takes the message of that kind."""

    def __init__(self, channel: Channel, ranks: Ranks, device: torch.device) -> None:
        self._channel = channel
        self._ranks, self._device = ranks, device
        self._forget()

    def run(self) -> None:
        while True:
            message = self._channel.receive()
            if message.kind == "end":
                return
            try:
                with on_device(self._device):
                    getattr(self, f"_do_{message.kind}")(message.values, message.arrays)
            except RankLost:  # another rank has left the step; rank 0 says what comes of it
                self._ranks.group = None  # so that no rank waits for this one

    def _forget(self) -> None:
        self._config: EngineConfig | None = None
        self._part: LoadedPart | None = None
        self._runner: ModelRunner | None = None
        self._kv: dict[str, KVCache] = {}
        self._states: RecurrentStates | None = None
        self._kept: dict[tuple[str, int], list[torch.Tensor]] = {}
        self._adapters: dict[str, Adapter] = {}  # by fingerprint

    # -- before steps ------------------------------------------------------------------------------------------

    def _do_join(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        check_backend(self._device)  # which loads what takes long
        self._reply()
        ranks = self._ranks
        ranks.group = None  # that of a step that was left
        ranks.group = join(values["path"], ranks.rank, ranks.size, self._device, values["timeout"])
        self._reply()

    def _do_load(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self._forget()
        try:
            self._config = EngineConfig(**values)
            self._part = load_part(self._config, self._device, self._ranks)
            # as rank 0 does, for the tables of positions
            self._part.decoder.switch_ropes()
        except (ConfigError, ModelError) as error:
            self._refuse(error)
            return
        by_name = self._part.adapters
        self._adapters = {adapter.fingerprint: adapter for adapter in by_name.values()}
        fingerprints = {name: adapter.fingerprint for name, adapter in by_name.items()}
        self._reply({"num_weight_bytes": self._part.decoder.num_weight_bytes, "adapters": fingerprints})

    def _do_begin(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Makes the tensors of an engine."""
        config, part = self._config, self._part
        assert config is not None and part is not None
        self._runner, self._kv, self._states, self._kept = None, {}, None, {}
        model = part.decoder.config
        kv = pool_tensors(config, part, values["num_blocks"], values["num_slots"])
        self._kv = {"pool": kv.pool, "windowed": kv.windowed} if isinstance(kv, WindowKV) else {"pool": kv}
        if model.recurrent is not None:
            self._states = RecurrentStates(model, values["num_states"], self._device)
        self._runner = make_runner(config, part, kv, self._states)
        self._reply({"num_kv_bytes": sum(one.block_bytes * one.num_blocks for one in self._kv.values())})

    def _do_forget(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self._forget()

    def _do_adapter(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        part, name, folder = self._part, values["name"], values["folder"]
        assert part is not None
        for fingerprint in values["dropped"]:
            self._adapters.pop(fingerprint, None)
        try:
            cut = part.decoder.cut
            adapter = load_adapter(name, folder, cut.whole, self._device, part.dtype, cut)
            if adapter.fingerprint != values["fingerprint"]:
                raise ConfigError(f"adapters: {name}: {folder} has changed since rank 0 read it; load it again")
        except (ConfigError, ModelError) as error:
            self._refuse(error)
            return
        self._adapters[adapter.fingerprint] = adapter
        self._reply()

    # -- steps -------------------------------------------------------------------------------------------------

    def _do_forward(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self._run().forward(batch_of(arrays, values["adapters"], self._adapters), self._decided(values))

    def _do_forward_hidden(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self._run().forward_hidden(batch_of(arrays, values["adapters"], self._adapters), self._decided(values))

    def _do_score_keys(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        adapter = None if values["adapter"] is None else self._adapters[values["adapter"]]
        token_ids, blocks = arrays["token_ids"].tolist(), arrays["blocks"].tolist()
        self._ranks.collect(self._run().score_keys(token_ids, values["end"], blocks, values["num_keys"], adapter))

    def _do_run_warmup_batches(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self._run().run_warmup_batches(WarmupBatches(**values))

    def _decided(self, values: Mapping[str, Any]) -> torch.Tensor | None:
        number = values["num_decided"]
        if number is None:
            return None
        return self._ranks.share(torch.empty(number, dtype=torch.int64, device=self._device))

    def _run(self) -> ModelRunner:
        assert self._runner is not None
        return self._runner

    # -- blocks ------------------------------------------------------------------------------------------------

    def _do_copy_block(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self._kv_of(values).copy_block(values["source"], values["target"])

    def _do_gather(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        kept = self._kv_of(values).gather(arrays["blocks"].tolist(), torch.from_numpy(arrays["places"]))
        self._kept[values["name"], values["number"]] = kept

    def _do_scatter(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        kept = self._kept[values["name"], values["number"]]
        self._kv_of(values).scatter(arrays["blocks"].tolist(), kept)

    def _do_read_blocks(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self._ranks.collect(self._rows_of(values).read_blocks(arrays["blocks"].tolist()))

    def _do_write_blocks(self, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        tensors, blocks = self._rows_of(values), arrays["blocks"].tolist()
        shape = (self._ranks.size, len(blocks), tensors.block_bytes)
        like = torch.empty(shape[1:], dtype=torch.uint8, device=self._device).expand(shape)
        tensors.write_blocks(blocks, self._ranks.hand_out(like))

    def _rows_of(self, values: Mapping[str, Any]) -> KVCache | RecurrentStates:
        if values["name"] != STATES:
            return self._kv_of(values)
        assert self._states is not None
        return self._states

    def _kv_of(self, values: Mapping[str, Any]) -> KVCache:
        """The tensors that are meant; and what rank 0 has let go of is let go of here."""
        for number in values["dropped"]:
            self._kept.pop((values["name"], number), None)
        return self._kv[values["name"]]

    def _refuse(self, error: ConfigError | ModelError) -> None:
        kind = "ConfigError" if isinstance(error, ConfigError) else "ModelError"
        self._channel.send(Message("refused", {"error": kind, "text": str(error)}).packed())

    def _reply(self, values: Mapping[str, Any] | None = None) -> None:
        self._channel.send(Message("done", values or {}).packed())
