"""One run of a command: inputs, results, manifest."""

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, Self

from shapshift.cli import _manifest as manifests
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._folder import Folder, existing_parent, move_new, undisturbed, writing
from shapshift.cli._manifest import MANIFEST, PAGE_ENDINGS, Manifest
from shapshift.cli._options import Output, Page, Tables, recorded, to_record
from shapshift.cli._terminal import Terminal
from shapshift.io.files import destination, write_atomically, write_text


class Run:
    """What a command works with.

    Parameters
    ----------
    command : str
    groups : mapping of str to dataclass
        The options, by the name of their group.
    terminal : Terminal
    replaces_own : bool
        Whether results of an earlier run of the same command are replaced without being asked.
    called : mapping of str to str, optional
        What results call an input, by the name of its option, where its file has another name by now.

    Attributes
    ----------
    result : dict
        What ``--json`` prints.
    parameters : dict
        What the manifest says was chosen.
    """

    def __init__(
        self,
        command: str,
        groups: Mapping[str, Any],
        terminal: Terminal,
        *,
        replaces_own: bool = False,
        called: Mapping[str, str] | None = None,
    ) -> None:
        self._called = called or {}
        self.command, self.groups, self.terminal, self.replaces_own = command, groups, terminal, replaces_own
        self.output: Output = groups.get("Output", Output())
        self.out = self.output.out or Path(f"shapshift-{command}")
        self.page: Path | None = groups.get("Page", Page()).report
        self.result: dict[str, Any] = {}
        self.parameters: dict[str, Any] = {}
        self.manifest: Manifest | None = None
        self._inputs: dict[str, dict[str, str]] = {}
        self._names: set[str] = set()
        self._earlier: Manifest | None = None
        self._folder = Folder(self.out, force=self.output.force)

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self.output.seed

    def __enter__(self) -> Self:
        self._folder.recover()
        self._earlier = manifests.earlier(self.out, self.command)
        if self._earlier is not None and self.replaces_own:
            self._folder.own = {**self._earlier_files(), MANIFEST: manifests.digest(self.out / MANIFEST)}
        if self.page is not None:
            self._check_place(self.page)
        self._folder.__enter__()
        try:
            if self.page is not None:
                self.use_page(self.page)
        except BaseException as error:
            self._folder.__exit__(type(error), error, None)
            raise
        self.terminal.hold()
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.__exit__(*error)

    def input(self, name: str, path: Path) -> Path:
        """Note an input under the name of its option; returns the path."""
        from shapshift.tables import file_digest

        with self.terminal.busy(f"Reading {path}"):
            digest = file_digest(path)
        self._inputs[name] = {"path": manifests.recorded_path(path, self.out), "sha256": digest}
        return path

    def will_write(self, *names: str) -> None:
        """Refuse, before the work begins, to replace what is there; a name that ends in ``/`` is a whole folder."""
        self._folder.check_free(names)
        self._names.update(names)
        self._check_page()

    def path(self, name: str) -> Path:
        """Where to write a result; it moves into place when the run is done."""
        return self._folder.path(name)

    def table_name(self, stem: str) -> str:
        """Name of a table of rows in the format that was asked for."""
        return f"{stem}.{self.groups.get('Tables', Tables()).format}"

    def write_table(self, name: str, table: Any, *, as_input: bool = False) -> None:
        """Write a pyarrow table as Parquet or CSV, by the ending.

        Parameters
        ----------
        name : str
        table : pyarrow.Table
        as_input : bool
            Whether the table is read again by a command, so that its text stays as it is.
        """
        path = self.path(name)
        if name.endswith(".csv"):
            rows = zip(*(column.to_pylist() for column in table), strict=True)
            write_text(path, csv_text(table.column_names, rows, as_input=as_input))
            return

        import pyarrow.parquet as pq

        def write(file: BinaryIO) -> None:
            pq.write_table(table.replace_schema_metadata(), file, compression="zstd", write_page_checksum=True)

        write_atomically(path, write)

    def use_page(self, page: Path) -> None:
        """Say where the page goes; refused where that would replace anything but an earlier page."""
        self._check_place(page)
        inside = self._inside(page)
        if inside is not None:
            self._folder.check_free([inside])
        elif os.path.lexists(page) and not self.output.force:
            raise _page_exists(page)
        self.page = page
        self._check_page()

    def finish(self) -> None:
        """Write the manifest and move everything into place, a page that goes elsewhere last."""
        self._folder.check_whole()
        page = None
        if self.page is not None:
            page = {"name": self.page.name, "sha256": manifests.digest(self.path(_PAGE))}
        made = {name: manifests.digest(self.path(name)) for name in self._folder.names() if name != _PAGE}
        self._names.update(made)
        self._check_page()
        self.manifest = Manifest(
            command=self.command,
            options=to_record(self.groups, {name: entry["path"] for name, entry in self._inputs.items()}),
            inputs=self._inputs,
            parameters=self.parameters,
            seed=self.seed,
            versions=manifests.versions(),
            outputs=made,
            report=page,
        )
        with writing(self.out):
            write_text(self.path(MANIFEST), self.manifest.to_json())
        with undisturbed():
            self._commit()
            self.terminal.written.append(str(self.out))
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

    def called(self, name: str) -> str:
        """Return what results call an input: its bare name, that of the first run when a run is repeated."""
        return Path(self._called.get(name, self._inputs[name]["path"])).name

    def files(self) -> dict[str, str]:
        """Names and digests of the inputs, for people."""
        return {
            name.replace("_", " "): f"{self.called(name)} (sha256 {entry['sha256'][:12]})"
            for name, entry in self._inputs.items()
        }

    def digests(self) -> dict[str, str]:
        """Digests of the inputs, for people who need not know their names."""
        return {name.replace("_", " "): f"sha256 {entry['sha256'][:12]}" for name, entry in self._inputs.items()}

    def page_path(self) -> Path:
        """Where to write the page; it moves to its place with the results."""
        return self.path(_PAGE)

    def _commit(self) -> None:
        """Move everything into place; a page inside the folder moves with the rest."""
        stale = self._earlier_files()
        if self.page is None:
            self._folder.commit(stale)
            return
        inside = self._inside(self.page)
        if inside is not None:
            self._folder.rename(_PAGE, inside)
            self._folder.commit(stale)
            return
        # What stands there is replaced only if that was asked for.
        page, force, target = self.page, self.output.force, destination(self.page)
        with self._folder.beside(_PAGE, target) as hidden:

            def place() -> None:
                with writing(target):
                    try:
                        (os.replace if force else move_new)(hidden, target)
                    except FileExistsError:
                        raise _page_exists(page) from None

            self._folder.commit(stale, place)

    def _inside(self, page: Path) -> str | None:
        """Name of the page within the folder of results, None for one elsewhere."""
        target, folder = destination(page), Path(os.path.realpath(self.out))
        return target.relative_to(folder).as_posix() if target.is_relative_to(folder) else None

    def _check_place(self, page: Path) -> None:
        """Refuse a page that is no file, or that no file could be."""
        if page.is_dir():
            raise CommandError(f"--report must name a file such as out.html. {str(page)!r} is a folder.")
        if page.suffix.lower() not in PAGE_ENDINGS:
            raise CommandError(f"--report must name a file that ends in .html, such as out.html. Got {str(page)!r}.")
        if Path(os.path.realpath(self.out)).is_relative_to(os.path.realpath(page)):
            raise CommandError(f"--report and --out must differ. Both name {str(page)!r}.")
        folder = existing_parent(page)
        if not os.access(folder, os.W_OK):
            raise CommandError(f"{str(page)!r} cannot be written: no permission in its folder.", Code.CANNOT_WRITE)
        if any(above.exists() and not above.is_dir() for above in page.absolute().parents):
            raise CommandError(f"--report must name a file in a folder. In {str(page)!r} a file stands for a folder.")

    def _check_page(self) -> None:
        """Refuse a page that would replace an input or a result of this very run."""
        if self.page is None:
            return
        inside = self._inside(self.page)
        folders = {name.rpartition("/")[0] for name in self._names} - {""}
        if inside is not None and (inside in (*self._names, MANIFEST) or inside.rpartition("/")[0] in folders):
            raise CommandError(f"--report must not name a result of the run. Got {str(self.page)!r}; choose another.")
        target = os.path.realpath(self.page)
        for path in self._input_paths():
            if os.path.realpath(path) == target or (self.page.exists() and os.path.samefile(path, self.page)):
                raise CommandError(
                    f"--report must not name an input, it would be replaced. Got {str(self.page)!r}; choose another."
                )

    def _input_paths(self) -> Iterator[Path]:
        """Every file that the options name as an input."""
        from shapshift.tables.files import find_parts

        for group in self.groups.values():
            for field in fields(group):
                given = getattr(group, field.name)
                if isinstance(given, Path) and field.name in recorded(type(group)):
                    with suppress(OSError, ValueError):  # reading it will say what is wrong with it
                        yield from find_parts(given).files

    def _earlier_files(self) -> dict[str, str]:
        """Files of the run that is replaced, its page among them if that is in the folder."""
        if self._earlier is None:
            return {}
        page = self._earlier.report
        return {**self._earlier.outputs, **({} if page is None else {page["name"]: page["sha256"]})}


_PAGE = ".page.html"


def _page_exists(page: Path) -> CommandError:
    return CommandError(
        f"{str(page)!r} is there already. Name another file with --report, or use --force.", Code.EXISTS
    )


def csv_text(header: Sequence[str], rows: Any, *, as_input: bool = False) -> str:
    """CSV for spreadsheets: no text is run as a formula, all of it is quoted, and accents are read as such.

    A table that is to be read again keeps its text: a label "+" with an apostrophe before it would be another label.
    """
    from shapshift.price import safe_cell

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    for row in [header, *rows]:
        writer.writerow(["" if entry is None else entry if as_input else safe_cell(entry) for entry in row])
    return "\ufeff" + out.getvalue()


def frame(columns: Mapping[str, Any]) -> Any:
    """Make a pyarrow table of arrays."""
    import pyarrow as pa

    return pa.table(
        {name: pa.array(list(column) if _is_objects(column) else column) for name, column in columns.items()}
    )


def _is_objects(column: Any) -> bool:
    return getattr(column, "dtype", None) is not None and column.dtype.kind in "OU"


def _few(names: list[str]) -> list[str]:
    folders = list(dict.fromkeys(name.split("/")[0] + ("/" if "/" in name else "") for name in names))
    return folders if len(folders) <= 8 else [*folders[:7], f"and {len(folders) - 7} more"]
