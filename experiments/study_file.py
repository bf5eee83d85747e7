"""Studies in TOML files: the keys and their conversion; see docs/experiments.md.

A file that names modules to ``import`` runs their code: use only files that you trust.
"""

import functools
import importlib
import inspect
import itertools
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.study import Files, Study, open_source
from shapshift import BoundaryCorrector, EntropyNormalizer, PosteriorCorrector
from shapshift.cli._data import parse_perturbation
from shapshift.cli._errors import CommandError
from shapshift.exceptions import InputError
from shapshift.methods import MethodSpec, parse_method, read_value
from shapshift.tables.files import did_you_mean

#: Correctors by their names in a file.
CORRECTORS: dict[str, Callable[..., Any]] = {
    "boundary": BoundaryCorrector,
    "entropy": EntropyNormalizer,
    "posterior": PosteriorCorrector,
}
#: Keys of a file, and the required type of each.
KEYS: dict[str, tuple[tuple[type, ...], str]] = {
    "name": ((str,), "a text"),
    "data": ((list,), "a list of names of datasets and of tables"),
    "model": ((dict,), "a table"),
    "noise": ((list,), "a list of numbers"),
    "relative": ((bool,), "true or false"),
    "perturbations": ((list,), 'a list such as ["flip:0.1"]'),
    "correctors": ((list,), 'a list such as ["boundary"]'),
    "seeds": ((int,), "a whole number"),
    "n_train": ((int,), "a whole number"),
    "n_val": ((int,), "a whole number"),
    "protocol": ((str,), "a text"),
}
#: Keys of a table in ``data``; the others are those of TableSpec.
DATA_KEYS: dict[str, tuple[tuple[type, ...], str]] = {
    "name": ((str,), "a text"),
    "train": ((str,), "the path of a file"),
    "val": ((str,), "the path of a file"),
    "label": ((str,), "the name of a column"),
    "id": ((str,), "the name of a column"),
    "drop": ((list,), "a list of columns"),
    "features": ((list,), "a list of columns"),
    "scale": ((str,), "a text"),
    "categorical": ((str,), "a text"),
    "impute": ((str, bool), "a text or false"),
    "text": ((str, list), "a column or a list of columns"),
    "image": ((str, list), "a column or a list of columns"),
    "embed": ((str,), "the folder or the name of a model"),
}


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read a study from a TOML file.

    Parameters
    ----------
    path : path-like
        Paths in the file are relative to its folder, from which modules are imported too.

    Returns
    -------
    Study

    Raises
    ------
    InputError
        If the file is missing or is not TOML, or a key is unknown, has the wrong type, or cannot be used; the message
        names the key.
    """
    file = Path(path)
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The study {file} cannot be read: {error.strerror}. Name a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"The study {file} is not TOML: {error}.") from None
    _check_keys(file.name, given, KEYS)
    if "data" not in given:
        raise InputError(f"{file.name} lacks the key 'data', for instance data = [\"wine\"].")
    parts: dict[str, Any] = {
        key: given[key] for key in ("noise", "relative", "seeds", "n_train", "n_val", "protocol") if key in given
    }
    parts["name"] = given.get("name", file.stem)
    parts["data"] = _named(file, "data", given["data"], lambda key, entry: _data(file, key, entry))
    parts["models"] = _models(file, given.get("model", {}))
    if "correctors" in given:
        parts["correctors"] = _named(
            file, "correctors", given["correctors"], lambda key, entry: _corrector(file, key, entry)
        )

    def perturbation(key: str, entry: Any) -> Any:
        if isinstance(entry, dict):
            return _imported(file, key, entry)
        labels: list[Any] = []
        if "priors" in entry:  # the only keys that name labels
            read = Study(data=parts["data"], noise=[1.0], **{k: parts[k] for k in ("n_train", "n_val") if k in parts})
            splits = [open_source(name, source, read).split(0) for name, source in read.data.items()]
            labels = list(dict.fromkeys(label for split in splits for label in split.y_train.tolist()))
        return parse_perturbation(entry, labels)

    parts["perturbations"] = _named(file, "perturbations", given.get("perturbations", []), perturbation)
    study: Study = _guarded(file.name, lambda: Study(**parts))
    return study


def _check_keys(where: str, given: Mapping[str, Any], known: Mapping[str, tuple[tuple[type, ...], str]]) -> None:
    for key, entry in given.items():
        if key not in known:
            raise InputError(
                f"{where} has the unknown key {key!r}. The keys are {', '.join(known)}.{did_you_mean(key, list(known))}"
            )
        kinds, expected = known[key]
        if not isinstance(entry, kinds) or (isinstance(entry, bool) and bool not in kinds):
            raise InputError(f"The key {key!r} of {where} must be {expected}. Got {entry!r}.")


def _guarded(where: str, make: Callable[[], Any]) -> Any:
    """Call a function; its errors name the place of the invalid entry."""
    try:
        return make()
    except CommandError as error:
        raise InputError(f"{where}: {str(error).replace('--perturb', 'a perturbation')}") from None
    except (InputError, OSError) as error:
        raise InputError(f"{where}: {error}") from error


def _named(file: Path, key: str, entries: list[Any], make: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Make each entry of a list; its name is its text, or the ``name`` in its table."""
    made: dict[str, Any] = {}
    for number, entry in enumerate(entries):
        where = f"{file.name}, {key}[{number}]"
        if not isinstance(entry, str | dict):
            raise InputError(f"{where} must be a text or a table. Got {entry!r}.")
        own = dict(entry) if isinstance(entry, dict) else {}
        name = entry if isinstance(entry, str) else own.pop("name", own.get("import", own.get("train")))
        if not isinstance(name, str) or name in made:
            what = f"the name {name!r} a second time" if name in made else "no name that is a text"
            raise InputError(f"{where} has {what}. Give it a 'name' of its own.")
        made[name] = _guarded(where, functools.partial(make, where, own or entry))
    return made


def _data(file: Path, where: str, entry: Any) -> Any:
    if isinstance(entry, str):
        return entry
    _check_keys(where, entry, DATA_KEYS)
    for key in ("train", "label"):
        if key not in entry:
            raise InputError(f"the key {key!r} is missing")
    paths = {key: file.parent / entry[key] for key in ("train", "val") if key in entry}
    for key, path in paths.items():
        if not any(mark in str(path) for mark in "*?[") and not path.exists():
            raise InputError(f"the key {key!r} names {entry[key]!r}, which is not there")
    columns = {key: value for key, value in entry.items() if key not in ("train", "val", "label")}
    if "embed" in columns and (file.parent / columns["embed"]).is_dir():
        columns["embed"] = str(file.parent / columns["embed"])
    return Files(label=entry["label"], columns=columns, **paths)


def _models(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    """Build a model for each combination of the entries of lists."""
    table = dict(table)
    method = table.pop("method", "knn")
    where = f"{file.name}, model"
    if not isinstance(method, str):
        raise InputError(f"The key 'method' of {where} must be a text such as \"knn\". Got {method!r}.")
    spec: MethodSpec = _guarded(where, lambda: parse_method(method))
    models = {}
    for chosen in itertools.product(*(entry if isinstance(entry, list) else [entry] for entry in table.values())):
        parameters = dict(zip(table, chosen, strict=True))
        varied = [f"{key}={parameters[key]}" for key, entry in table.items() if isinstance(entry, list)]
        models[" ".join([method, *varied])] = _guarded(
            where, functools.partial(spec.build, parameters, {"progress": False})
        )
    if not models:
        raise InputError(f"A list in {where} is empty: every parameter needs at least one entry.")
    return models


def _corrector(file: Path, where: str, entry: Any) -> Any:
    if isinstance(entry, dict):
        return _imported(file, where, entry)
    name, _, rest = entry.partition(":")
    if name not in CORRECTORS:
        hint = did_you_mean(name, list(CORRECTORS))
        raise InputError(
            f"there is no corrector {name!r}. There are {', '.join(CORRECTORS)}; for one of your own write "
            f'{{import = "module:Class"}}.{hint}'
        )
    parameters = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, _, value = part.partition("=")
        parameters[key.strip()] = read_value(value.strip())
    return _called(name, CORRECTORS[name], parameters)


def _imported(file: Path, where: str, entry: dict[str, Any]) -> Any:
    """Import what an entry names; classes are called with its other keys, functions get them bound."""
    target = entry.get("import")
    if not isinstance(target, str) or not all(target.partition(":")[::2]):
        raise InputError(f"the table needs the key 'import', a text \"module:name\". Got {target!r}")
    module, _, name = target.partition(":")
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # the module's code can raise anything
        raise InputError(f"the key 'import' names {target!r}, which cannot be imported: {error}") from error
    finally:
        sys.path.pop(0)
    parameters = {key: value for key, value in entry.items() if key != "import"}
    if inspect.isclass(found):
        return _called(name, found, parameters)
    if parameters and not callable(found):
        raise InputError(f"the key 'import' names {target!r}, which takes no parameters. Got {', '.join(parameters)}")
    if parameters:
        _check_arguments(name, found, parameters)
        return functools.partial(found, **parameters)
    return found


def _called(name: str, kind: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    _check_arguments(name, kind, parameters)
    return kind(**parameters)


def _check_arguments(name: str, function: Callable[..., Any], parameters: dict[str, Any]) -> None:
    """Refuse parameters that a class or function does not take; functions get the others when they are called."""
    signature = inspect.signature(function)
    try:
        (signature.bind if inspect.isclass(function) else signature.bind_partial)(**parameters)
    except TypeError as error:
        raise InputError(f"{name}: {error}. It takes {', '.join(signature.parameters) or 'nothing'}") from None
