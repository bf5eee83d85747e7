"""One run of a command: inputs, results, manifest."""

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from shapshift._files import write_atomically, write_text
from shapshift.cli import _manifest as manifests
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._folder import MANIFEST, Folder, copy_file, writing
from shapshift.cli._manifest import Manifest
from shapshift.cli._options import Output, Page, Tables
from shapshift.cli._terminal import Terminal
from shapshift.price._statement import cell
from shapshift.tables import file_digest

# These say where results go and what is shown; they are no part of a run.
_NOT_KEPT = {"Output": ("out", "force", "json", "quiet", "debug"), "Page": ("report",), "Dataset": ("data_dir",)}


class Run:
    """What a command works with.

    Parameters
    ----------
    command : str
    groups : mapping of str to dataclass
        The options, by the name of their group.
    terminal : Terminal

    Attributes
    ----------
    result : dict
        What ``--json`` prints.
    parameters : dict
        What the manifest says was chosen.
    """

    def __init__(self, command: str, groups: Mapping[str, Any], terminal: Terminal) -> None:
        self.command, self.groups, self.terminal = command, groups, terminal
        self.output: Output = groups.get("Output", Output())
        self.out = self.output.out or Path(f"shapshift-{command}")
        self.page: Path | None = groups.get("Page", Page()).report
        self.result: dict[str, Any] = {}
        self.parameters: dict[str, Any] = {}
        self.manifest: Manifest | None = None
        self._inputs: dict[str, dict[str, str]] = {}
        self._folder = Folder(self.out, force=self.output.force)

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self.output.seed

    def __enter__(self) -> Self:
        if self.page is not None:
            if self.page.is_dir():
                raise CommandError(f"--report must name a file such as out.html. {str(self.page)!r} is a folder.")
            if self.page.exists() and not self.output.force:
                raise CommandError(
                    f"{str(self.page)!r} is there already. Name another file with --report, or use --force.",
                    Code.EXISTS,
                )
            folder = self.page.absolute().parent
            if folder.is_dir() and not os.access(folder, os.W_OK):
                raise CommandError(
                    f"{str(self.page)!r} cannot be written: no permission in its folder.", Code.CANNOT_WRITE
                )
        self._folder.__enter__()
        self.terminal.hold()
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.__exit__(*error)

    def input(self, name: str, path: Path) -> Path:
        """Note an input under the name of its option; returns the path."""
        with self.terminal.busy(f"Reading {path}"):
            digest = file_digest(path)
        self._inputs[name] = {"path": manifests.recorded_path(path, self.out), "sha256": digest}
        return path

    def will_write(self, *names: str) -> None:
        """Refuse, before the work begins, to replace what is there."""
        self._folder.check_free(names)

    def path(self, name: str) -> Path:
        """Where to write a result; it moves into place when the run is done."""
        return self._folder.path(name)

    def table_name(self, stem: str) -> str:
        """Name of a table of rows in the format that was asked for."""
        return f"{stem}.{self.groups.get('Tables', Tables()).format}"

    def write_table(self, name: str, table: Any) -> None:
        """Write a pyarrow table as Parquet or CSV, by the ending."""
        path = self.path(name)
        if name.endswith(".csv"):
            write_text(path, csv_text(table.column_names, zip(*(column.to_pylist() for column in table), strict=True)))
            return

        def write(file: BinaryIO) -> None:
            pq.write_table(table.replace_schema_metadata(), file, compression="zstd")

        write_atomically(path, write)

    def finish(self) -> None:
        """Write the manifest and move everything into place."""
        made = {name: manifests.digest(self.path(name)) for name in self._folder.names()}
        page = None if self.page is None else {"name": self.page.name, "sha256": made.pop(_PAGE)}
        self.manifest = Manifest(
            command=self.command,
            options=self._kept_options(),
            inputs=self._inputs,
            parameters=self.parameters,
            seed=self.seed,
            versions=manifests.versions(),
            outputs=made,
            report=page,
        )
        if self.page is not None:
            self._place_page(self.page)
        with writing(self.out):
            write_text(self.path(MANIFEST), self.manifest.to_json())
        self._folder.commit(stale=self._earlier_outputs())
        self.terminal.release()
        self.terminal.document(
            {
                "command": self.command,
                "out": str(self.out),
                "files": [*made, MANIFEST],
                "report": None if self.page is None else str(self.page),
                "result": self.result,
            }
        )
        self.terminal.line(f"Results: {self.out}/ ({', '.join(_few([*made, MANIFEST]))})", style="bold")
        if self.page is not None:
            self.terminal.line(f"Open in a browser: {self.page.absolute()}", style="bold")

    def files(self) -> dict[str, str]:
        """Names and digests of the inputs, for people."""
        return {
            name.replace("_", " "): f"{Path(entry['path']).name} (sha256 {entry['sha256'][:12]})"
            for name, entry in self._inputs.items()
        }

    def page_path(self) -> Path:
        """Where to write the page; it moves to its place with the results."""
        return self.path(_PAGE)

    def _place_page(self, page: Path) -> None:
        """Let a page inside the folder move with the rest, and copy any other to where it belongs."""
        staged, inside = self.path(_PAGE), Path(os.path.abspath(page))
        folder = Path(os.path.abspath(self.out))
        if inside.is_relative_to(folder):
            os.replace(staged, self.path(inside.relative_to(folder).as_posix()))
        else:
            copy_file(staged, page)
            staged.unlink()

    def _kept_options(self) -> dict[str, dict[str, Any]]:
        kept = {}
        for name, group in self.groups.items():
            fields = {key: value for key, value in asdict(group).items() if key not in _NOT_KEPT.get(name, ())}
            for key in fields:
                if key in self._inputs:
                    fields[key] = self._inputs[key]["path"]
            if fields:
                kept[name] = fields
        return kept

    def _earlier_outputs(self) -> Sequence[str]:
        """Files of the run that is replaced."""
        try:
            return list(manifests.read_manifest(self.out).outputs)
        except (CommandError, OSError):
            return []


_PAGE = ".page.html"


def csv_text(header: Sequence[str], rows: Any) -> str:
    """CSV in which no text is run as a formula by a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([cell(name) for name in header])
    writer.writerows([["" if entry is None else cell(entry) for entry in row] for row in rows])
    return out.getvalue()


def frame(columns: Mapping[str, Any]) -> Any:
    """Make a pyarrow table of arrays."""
    return pa.table(
        {name: pa.array(list(column) if _is_objects(column) else column) for name, column in columns.items()}
    )


def _is_objects(column: Any) -> bool:
    return getattr(column, "dtype", None) is not None and column.dtype.kind in "OU"


def _few(names: list[str]) -> list[str]:
    folders = list(dict.fromkeys(name.split("/")[0] + ("/" if "/" in name else "") for name in names))
    return folders if len(folders) <= 8 else [*folders[:7], f"and {len(folders) - 7} more"]
