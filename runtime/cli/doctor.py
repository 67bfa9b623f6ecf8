"""`phloem doctor`: what is installed here, and whether it works.

An "ok" line says only what has just been checked.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from collections.abc import Callable

import typer

from ... import __version__

PACKAGES = ("torch", "triton", "numpy", "sentencepiece", "tokenizers", "safetensors", "fastapi", "uvicorn")


def doctor() -> None:
    """Reports the environment (for bug reports) and runs the bundled model for a few tokens; exit code 1 on a fault."""
    typer.echo(f"phloem        {__version__}")
    typer.echo(f"python        {platform.python_version()} ({sys.executable})")
    typer.echo(f"platform      {platform.platform()}, {os.cpu_count()} CPUs")
    for name in PACKAGES:
        typer.echo(f"{name:<14}{_version(name)}")
    checks: list[tuple[str, Callable[[], str]]] = [
        ("torch", _torch),
        ("tokenizer", _tokenizer),
        ("model", _model),
        ("constraint", _constraint),
    ]
    num_failed = 0
    for name, check in checks:
        try:
            typer.echo(f"ok    {name}: {check()}")
        except Exception as error:
            num_failed += 1
            typer.echo(f"FAIL  {name}: {type(error).__name__}: {error}")
    if num_failed:
        raise typer.Exit(1)


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # no other command asks for versions

    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed" + (" (only needed on a GPU)" if name == "triton" else "")


class Fault(Exception):
    """Something works otherwise than it should."""


def _demand(holds: bool, otherwise: str) -> None:
    """Unlike `assert`, also under `python -O`."""
    if not holds:
        raise Fault(otherwise)


def _torch() -> str:
    import torch

    numbers = [[1.0, 2.0], [3.0, 4.0]]
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    for name in ("cpu", *names):
        matrix = torch.tensor(numbers, device=name)
        found = (matrix @ matrix).tolist()
        _demand(found == [[7.0, 10.0], [15.0, 22.0]], f"{name}: {numbers} by itself came out as {found}")
    if not names:
        return f"multiplies; no CUDA device, the CPU is used with {torch.get_num_threads()} threads"
    properties = [torch.cuda.get_device_properties(name) for name in names]
    found_devices = [
        f"{name} {found.name}, {found.total_memory / 2**30:.0f} GiB"
        for name, found in zip(names, properties, strict=True)
    ]
    return f"multiplies on the CPU and {'; '.join(found_devices)}; CUDA {torch.version.cuda}"


def _tokenizer() -> str:
    from ..models import resolve_model
    from ..tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_folder(resolve_model("nano"))
    text = "Phloem, 1 tree – many branches."
    found = tokenizer.decode(tokenizer.encode(text))
    _demand(found == text, f"{text!r} came back as {found!r}")
    return f"{tokenizer.vocab_size} tokens, text comes back unchanged"


def _model() -> str:
    from ..engine.engine import Engine
    from ..request import SamplingParams

    with Engine("nano", num_blocks=64) as engine:
        sampling = SamplingParams(max_tokens=8, temperature=0.0)
        first, again = (engine.chat([{"role": "user", "content": "Hello"}], sampling) for _ in range(2))
        engine.core.audit()
    _demand(bool(first.text.strip()), "nano answers nothing")
    _demand(first.text == again.text, f"the same question got two answers, {first.text!r} and {again.text!r}")
    _demand(again.usage.cached_tokens > 0, "the prompt was not found in the cache when it came again")
    return f"nano answers {first.text!r}, the second time from the cache"


def _constraint() -> str:
    from ..constrain.spec import json_schema
    from ..engine.engine import Engine
    from ..request import SamplingParams

    with Engine("nano", num_blocks=64) as engine:
        spec = json_schema({"type": "string", "format": "date", "pattern": "^20"})
        text = engine.generate("Date: ", SamplingParams(max_tokens=32, seed=0), spec).text
    try:
        date = datetime.date.fromisoformat(json.loads(text))
    except (ValueError, TypeError) as error:
        raise Fault(f"a date was asked for, {text!r} came ({error})") from error
    return f"a date is a date ({date})"
