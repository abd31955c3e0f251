"""Imports run one way (docs/design.md, "Packages"); few files use private names of libraries."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = [ROOT / f"{name}.py" for name in ("train", "eval", "translate", "generate", "convert")]
PACKAGE = sorted((ROOT / "transformer").rglob("*.py"))


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name):
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(path):
    """Every module that a file imports, at any depth of the code."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports of the project are written in full"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            own = node.module.split(".")[0] == "transformer"
            found |= {name if own and is_module(name) else node.module for name in inner}
    return found


GRAPH = {module_name(path): imports(path) for path in PACKAGE + COMMANDS}


def of_the_project(name):
    return {module for module in GRAPH[name] if module.split(".")[0] == "transformer"}


def in_package(package):
    return [name for name in GRAPH if name == package or name.startswith(package + ".")]


MODEL_ORDER = [
    "batch", "params", "kernels", "primitives", "layers", "encoder_decoder", "cached_decoder",
]  # fmt: skip
EVERYWHERE = {"transformer.config", "transformer.errors"}
ALLOWED = {
    "transformer.errors": set(),
    "transformer.config": {"transformer.errors"},
    "transformer.machine": {"transformer.errors"},
    "transformer.data": EVERYWHERE | {"transformer.machine", "transformer.model.batch"},
    "transformer.training": EVERYWHERE
    | {"transformer.model", "transformer.machine.memory", "transformer.machine.targets"},
    "transformer.decoding.search": EVERYWHERE
    | {
        "transformer.model.batch",
        "transformer.decoding.candidates",
        "transformer.decoding.constraints",
        "transformer.decoding.terms",
    },
    "transformer.decoding.terms": EVERYWHERE
    | {"transformer.model.batch", "transformer.decoding.candidates"},
    "transformer.decoding.candidates": EVERYWHERE | {"transformer.model.batch"},
    "transformer.decoding.constraints": EVERYWHERE | {"transformer.model.batch"},
    "transformer.decoding": EVERYWHERE
    | {
        "transformer.model",
        "transformer.data.capitals",
        "transformer.data.tags",
        "transformer.data.tokenizer",
        "transformer.data.vocabularies",
        "transformer.data.batching",
    },
    "transformer.documents": EVERYWHERE
    | {
        "transformer.decoding",
        "transformer.data.tags",
        "transformer.data.tokenizer",
        "transformer.data.languages",
    },
    "transformer.evaluation": EVERYWHERE
    | {"transformer.machine.files", "transformer.data.languages"},
    "transformer.runs": EVERYWHERE
    | {
        "transformer.machine.files",
        "transformer.model.params",
        "transformer.model.batch",
        "transformer.training.step",
        "transformer.data.vocabularies",
    },
    "transformer.interchange": EVERYWHERE
    | {
        "transformer.model",
        "transformer.data.tokenizer",
        "transformer.data.piece_tokenizer",
        "transformer.data.tag_names",
        "transformer.data.tags",
        "transformer.data.vocabularies",
        "transformer.data.corpus",
        "transformer.data.files",
        "transformer.data.languages",
        "transformer.decoding",
        "transformer.evaluation",
        "transformer.runs",
        "transformer.machine.files",
    },
    "transformer.viewing": EVERYWHERE
    | {
        "transformer.model",
        "transformer.data",
        "transformer.decoding",
        "transformer.evaluation",
        "transformer.runs",
        "transformer.machine",
    },
    "transformer.serving": EVERYWHERE
    | {
        "transformer.model",
        "transformer.data",
        "transformer.decoding",
        "transformer.documents",
        "transformer.runs",
        "transformer.machine",
        "transformer.viewing",
        "transformer.commands",
    },
    **{
        f"transformer.commands.{name}": EVERYWHERE
        | {
            "transformer.machine",
            "transformer.runs.folder",
            "transformer.commands",
            "transformer.documents",
        }
        for name in ("command_line", "convert_line", "program", "standard_input", "verify_resume")
    },
    "transformer.commands": EVERYWHERE
    | {
        "transformer.model",
        "transformer.data",
        "transformer.training",
        "transformer.decoding",
        "transformer.documents",
        "transformer.evaluation",
        "transformer.runs",
        "transformer.machine",
    },
}
"""What a package may import besides its own modules."""


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_the_packages_below_it(package):
    modules = in_package(package)
    assert modules, f"there is no {package}"
    for module in modules:
        for imported in of_the_project(module):
            allowed = imported == "transformer" or any(  # for its version
                imported == below or imported.startswith(below + ".")
                for below in ALLOWED[package] | {package}
            )
            assert allowed, f"{module} must not import {imported}"


def test_every_module_is_in_a_package_that_has_a_rule():
    covered = [*ALLOWED, "transformer.model"]
    packages = {module_name(path) for path in PACKAGE if path.name == "__init__.py"}
    known = {name for package in covered for name in in_package(package)}
    assert set(GRAPH) - known - packages == {path.stem for path in COMMANDS}


@pytest.mark.parametrize("number, name", list(enumerate(MODEL_ORDER)))
def test_the_model_imports_only_arrays_config_and_what_comes_before(number, name):
    libraries = {"jax", "numpy", "flax", "jaxtyping"} | sys.stdlib_module_names
    imported = GRAPH[f"transformer.model.{name}"]
    others = {module for module in imported if module.split(".")[0] != "transformer"}
    assert {module.split(".")[0] for module in others} <= libraries
    before = {f"transformer.model.{earlier}" for earlier in MODEL_ORDER[:number]}
    assert of_the_project(f"transformer.model.{name}") <= before | {
        "transformer.config",
        "transformer.errors",
    }


def test_of_flax_the_model_imports_only_struct():
    for path in (ROOT / "transformer" / "model").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "flax":
                assert (node.module, [alias.name for alias in node.names]) == ("flax", ["struct"])
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("flax") for alias in node.names)


def test_config_imports_the_standard_library_alone():
    for name in in_package("transformer.config"):
        others = {module.split(".")[0] for module in GRAPH[name]} - {"transformer"}
        assert others <= sys.stdlib_module_names, name


def test_the_command_line_and_all_below_it_import_neither_jax_nor_flax():
    heavy = {"jax", "flax", "jaxtyping", "numpy", "optax", "orbax"}
    light = ("config", "errors", "commands.command_line", "commands.text_files")
    for name in map("transformer.{}".format, light):
        assert not {module.split(".")[0] for module in GRAPH[name]} & heavy


def test_outside_of_training_only_what_keeps_its_state_uses_it():
    users = {name for name in GRAPH if "transformer.training.step" in GRAPH[name]}
    assert {user for user in users if not user.startswith("transformer.training")} == {
        "transformer.runs.checkpoints",
        "transformer.runs.skipped",
        "transformer.commands.start",
        "transformer.commands.trainer",
        "transformer.commands.replay",
    }


def test_nothing_imports_the_commands():
    for name, imported in GRAPH.items():
        assert not {path.stem for path in COMMANDS} & imported, name


PRIVATE = {
    "transformer.machine.jax_internals",
    "transformer.runs.checkpoint_files",  # Orbax
    "transformer.data.tfds_corpus",
    "transformer.data.tfds_downloads",
}
"""Files that use names of a library with an underscore: they say why, and with which version."""
OF_TUPLES = {"_replace", "_asdict", "_fields", "_make", "_exit"}
"""Names that are public in spite of it: of named tuples, and os._exit."""


def private_names(path):
    """Private names of libraries: imported, attributes, or inherited from a library's class."""
    found, tree = set(), ast.parse(path.read_text(encoding="utf-8"))
    own = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            inherits = any(isinstance(base, ast.Attribute) for base in node.bases)
            methods = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
            own |= {
                id(inner)
                for inner in ast.walk(node)
                if isinstance(inner, ast.Attribute) and (not inherits or inner.attr in methods)
            }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", ""), *(alias.name for alias in node.names)]
            found |= {part for name in names for part in name.split(".")}
        elif isinstance(node, ast.Attribute):
            on_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not (on_self and id(node) in own):
                found.add(node.attr)
    return {name for name in found - OF_TUPLES if re.match("_[^_]", name)}


def test_private_names_of_libraries_are_used_in_one_file_for_each():
    users = {module_name(path) for path in PACKAGE + COMMANDS if private_names(path)}
    assert users <= PRIVATE
    assert private_names(ROOT / "transformer/machine/jax_internals.py") == {"_src"}
    assert private_names(ROOT / "transformer/runs/checkpoint_files.py") == {"_final_path"}
