"""Which folder may import which, and how much a class may be for: read from the files themselves."""

from __future__ import annotations

import ast
from dataclasses import dataclass
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
    {"explain"},
]
RUNTIME_FLOORS = [  # the same for runtime/; a module outside of the rooms counts as a room
    {"kv_policies", "moving_average", "byte_text"},
    {"sampling_params", "event_settings", "number_types", "path_fault", "device", "setting", "readout"},
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
MOST_PUBLIC = 15  # methods and properties of a class
MORE_PUBLIC = {  # those that have more, and why
    "NarrowSchema": "a visitor: pydantic calls a method for each kind of schema",
    "ProgramState": "programs written for SGLang call its methods by name",
}
FACES = {"server", "program", "cli"}
FORBIDDEN_EXTERNAL = {"radix": {"torch", "triton"}, "fsm": {"torch", "triton"}}


def _modules() -> list[Path]:
    return [p for d in (*sorted(GROUND_FLOOR), "runtime", "cluster", "faces") for p in sorted((ROOT / d).rglob("*.py"))]


@dataclass(frozen=True)
class Module:
    """What the tests ask of a file.

    Attributes:
        imports: absolute dotted targets of every import, relative ones resolved against `phloem.`.
        run: those of imports that are run, and are not for types alone.
        num_public: public methods and properties, by class.
    """

    imports: list[tuple[str, ...]]
    run: list[tuple[str, ...]]
    num_public: dict[str, int]


@cache
def _read(path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ("phloem", *path.relative_to(ROOT).with_suffix("").parts[:-1])
    for_types = {
        inner
        for node in tree.body
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    imports, run, num_public = [], [], {}
    for node in ast.walk(tree):
        found = _targets(node, package)
        imports += found
        run += [] if node in for_types else found
        if isinstance(node, ast.ClassDef):
            methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
            num_public[node.name] = sum(not name.startswith("_") for name in methods)
    return Module(imports, run, num_public)


def _targets(node: ast.AST, package: tuple[str, ...]) -> list[tuple[str, ...]]:
    if isinstance(node, ast.Import):
        return [tuple(alias.name.split(".")) for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package[: len(package) - node.level + 1] if node.level else ()
    module = tuple(node.module.split(".")) if node.module else ()
    is_absolute = node.level == 0 and module[0] == "phloem"
    return [(*base, *module, alias.name) for alias in node.names] + [("ABSOLUTE", *module)] * is_absolute


def _imports(path: Path, *, for_types: bool = True) -> list[tuple[str, ...]]:
    return _read(path).imports if for_types else _read(path).run


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


def test_a_class_is_one_thing() -> None:
    """What has more methods that others call is several; see docs/architecture.md."""
    more = {name for path in _modules() for name, number in _read(path).num_public.items() if number > MOST_PUBLIC}
    assert more <= MORE_PUBLIC.keys(), f"more than {MOST_PUBLIC} public methods: {sorted(more - MORE_PUBLIC.keys())}"


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
