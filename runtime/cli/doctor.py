"""`phloem doctor`: what is installed here, and whether it works."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import typer

PACKAGES = ("torch", "triton", "numpy", "numba", "sentencepiece", "tokenizers", "safetensors", "fastapi", "uvicorn")


def doctor() -> None:
    """Reports the environment (for bug reports) and runs the bundled model for a few tokens; exit code 1 on a fault."""
    typer.echo(f"phloem        {version('phloem')}")
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
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed" + (" (only needed on a GPU)" if name == "triton" else "")


def _torch() -> str:
    import torch

    if not torch.cuda.is_available():
        return f"no CUDA device; the CPU is used with {torch.get_num_threads()} threads"
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    names = [f"cuda:{i} {found.name}, {found.total_memory / 2**30:.0f} GiB" for i, found in enumerate(devices)]
    return f"{'; '.join(names)}; CUDA {torch.version.cuda}"


def _tokenizer() -> str:
    from ..models import resolve_model
    from ..tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.from_folder(resolve_model("nano"))
    text = "Phloem, 1 tree – many branches."
    found = tokenizer.decode(tokenizer.encode(text))
    assert found == text, f"{text!r} came back as {found!r}"
    return f"{tokenizer.vocab_size} tokens, text comes back unchanged"


def _model() -> str:
    from ..engine import Engine
    from ..request import SamplingParams

    with Engine("nano", num_blocks=64) as engine:
        sampling = SamplingParams(max_tokens=8, temperature=0.0)
        answers = [engine.chat([{"role": "user", "content": "Hello"}], sampling) for _ in range(2)]
        engine.audit()
    assert answers[0].text == answers[1].text, "the same question got two answers"
    return f"nano answers {answers[0].text!r}"


def _constraint() -> str:
    from ..constraint_spec import regex
    from ..engine import Engine
    from ..request import SamplingParams

    with Engine("nano", num_blocks=64) as engine:
        text = engine.generate("Date: ", SamplingParams(max_tokens=32), regex(r"\d{4}-\d\d-\d\d")).text
    assert len(text) == 10, f"a date was asked for, {text!r} came"
    return f"a date is a date ({text})"
