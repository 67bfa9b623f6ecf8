"""Which folder may import which, read from the imports themselves."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GROUND_FLOOR = {"radix", "fsm", "kernels"}
FSM_FLOORS = [  # a room imports rooms of lower floors only; modules outside of the rooms join them together
    {"text"},
    {"vocabulary", "network"},
    {"regex", "automaton"},
    {"json_schema", "masks"},
    {"grammars", "keys"},
    {"tags"},
    {"look"},
]
RUNTIME_FLOORS = [  # the same for runtime/; a module outside of the rooms counts as a room
    {"kv_policies"},
    {
        "sampling_params",
        "event_settings",
        "number_types",
        "path_fault",
        "device",
        "setting",
        "readout",
        "byte_text",
        "moving_average",
    },
    {"request", "parallel"},
    {"config", "option_types", "models", "kv_compress", "constrain"},
    {"tokenizer", "capacity"},
    {"execute"},
    {"offload", "sample"},
    {"events"},
    {"cache"},
    {"schedule", "speculate"},
    {"engine", "explain"},
    {"program", "server"},
    {"cli"},
]
FACES = {"server", "program", "cli"}
FORBIDDEN_EXTERNAL = {"radix": {"torch", "triton"}, "fsm": {"torch", "triton"}}


def _modules() -> list[Path]:
    return [p for d in (*sorted(GROUND_FLOOR), "runtime", "cluster", "faces") for p in sorted((ROOT / d).rglob("*.py"))]


@cache
def _imports(path: Path, *, for_types: bool = True) -> list[tuple[str, ...]]:
    """Absolute dotted targets of every import, relative ones resolved against `phloem.`; or of those that are run."""
    package = ("phloem", *path.relative_to(ROOT).with_suffix("").parts[:-1])
    found: list[tuple[str, ...]] = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not for_types:
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = tuple(node.module.split(".")) if node.module else ()
            found += [(*base, *module, alias.name) for alias in node.names]
            if node.level == 0 and module[0] == "phloem":
                found.append(("ABSOLUTE", *module))
    return found


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_stay_on_their_floor(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    for target in _imports(path):
        assert target[0] != "ABSOLUTE", f"{path}: inside the packages imports are relative: {target[1:]}"
        if target[0] != "phloem":
            assert target[0] not in FORBIDDEN_EXTERNAL.get(parts[0], set()), f"{path} imports {target[0]}"
            continue
        room = target[1] if len(target) > 1 else ""
        if parts[0] in GROUND_FLOOR:
            assert room in {parts[0], "_core", "errors", "json_size"}, f"{path} imports phloem.{room}"
            assert room != "_core" or target[2] == parts[0], f"{path} imports the core of {target[2]}"
        elif parts[0] == "faces":
            of_tokenizers = target[:3] == ("phloem", "runtime", "tokenizer")
            assert room in {"faces", "fsm", "errors"} or of_tokenizers, f"{path} imports phloem.{room}: no engine"
        elif parts[0] == "runtime":
            assert room != "faces", f"{path} reaches up into faces"
            assert room != "cluster" or parts[:3] == ("runtime", "cli", "serve.py"), f"{path} reaches up into cluster"
        if (
            parts[0] == "runtime"
            and room == "runtime"
            and parts[1].removesuffix(".py") not in FACES
            and len(target) > 2
        ):
            assert target[2] not in FACES, f"{path} reaches up into runtime.{target[2]}"


def test_models_never_import_the_scheduler() -> None:
    for path in sorted((ROOT / "runtime" / "models").glob("*.py")):
        assert not any({"scheduler", "engine", "prefix_cache"} & set(t) for t in _imports(path)), path


def test_the_rooms_of_fsm_stand_on_one_another() -> None:
    floor_of = {room: floor for floor, rooms in enumerate(FSM_FLOORS) for room in rooms}
    folders = {path.parent.name for path in (ROOT / "fsm").glob("*/__init__.py")}
    assert folders == set(floor_of), "every room has a floor"
    for path in sorted((ROOT / "fsm").glob("*/*.py")):
        for target in _imports(path):
            if target[:2] == ("phloem", "fsm") and target[2] in floor_of and target[2] != path.parent.name:
                assert floor_of[target[2]] < floor_of[path.parent.name], f"{path} reaches up into fsm.{target[2]}"


def test_no_module_needs_itself() -> None:
    """No import cycles, not even of those that only types need."""
    paths = {("phloem", *path.relative_to(ROOT).with_suffix("").parts): path for path in _modules()}
    left = {module: {t[:n] for t in _imports(path) for n in (len(t) - 1, len(t))} for module, path in paths.items()}
    while ready := [module for module, needs in left.items() if not needs & left.keys()]:
        for module in ready:
            del left[module]
    assert not left, sorted(".".join(module) for module in left)


def test_the_rooms_of_the_runtime_stand_on_one_another() -> None:
    floor_of = {room: floor for floor, rooms in enumerate(RUNTIME_FLOORS) for room in rooms}
    entries = [*(ROOT / "runtime").glob("*.py"), *(path.parent for path in (ROOT / "runtime").glob("*/__init__.py"))]
    assert {path.stem for path in entries} - {"__init__"} == set(floor_of), "every room has a floor"
    for path in sorted((ROOT / "runtime").rglob("*.py")):
        room = path.relative_to(ROOT / "runtime").parts[0].removesuffix(".py")
        for target in _imports(path, for_types=False):
            if room != "__init__" and target[:2] == ("phloem", "runtime") and len(target) > 2 and target[2] != room:
                assert floor_of[target[2]] < floor_of[room], f"{path} reaches up into runtime.{target[2]}"
