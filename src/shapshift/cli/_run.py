"""One run of a command: options, inputs, results, manifest."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from shapshift.checks.names import some
from shapshift.cli import _manifest as manifests
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._folder import Folder, existing_parent, move_new, undisturbed, writing
from shapshift.cli._manifest import MANIFEST, PAGE_ENDINGS, Manifest
from shapshift.cli._options import Output, Page, Tables, recorded, to_record
from shapshift.cli._terminal import Terminal
from shapshift.io.files import destination, write_atomically, write_text

Group = TypeVar("Group")


class Run:
    """Options, inputs and results of one run. ``run[Method]`` holds the given options of that group, or its defaults.

    Parameters
    ----------
    command : str
    options : mapping of type to dataclass
        Option groups with the given values.
    terminal : Terminal
    replaces_own : bool
        Whether results of an earlier run of the same command are replaced without --force.
    called : mapping of str to str, optional
        Names of inputs in the results, by option, for files that have been renamed since.

    Attributes
    ----------
    result : dict
        What ``--json`` prints.
    parameters : dict
        Parameters that the manifest records.
    """

    def __init__(
        self,
        command: str,
        options: Mapping[type, Any],
        terminal: Terminal,
        *,
        replaces_own: bool = False,
        called: Mapping[str, str] | None = None,
    ) -> None:
        self.command, self._options, self.terminal = command, options, terminal
        self._replaces_own, self._called = replaces_own, called or {}
        self.out = self[Output].out or Path(f"shapshift-{command.replace(' ', '-')}")
        self.seed = self[Output].seed
        self.page = self[Page].report
        self.result: dict[str, Any] = {}
        self.parameters: dict[str, Any] = {}
        self._inputs: dict[str, dict[str, str]] = {}
        self._names: set[str] = set()
        self._stale: dict[str, str] = {}
        self._folder = Folder(self.out, force=self[Output].force)

    def __getitem__(self, group: type[Group]) -> Group:
        given: Group = self._options[group] if group in self._options else group()
        return given

    def has(self, group: type) -> bool:
        """Whether the command has a group of options."""
        return group in self._options

    def __enter__(self) -> Self:
        self._folder.recover()
        earlier = manifests.earlier(self.out, self.command)
        if earlier is not None:
            self._stale = earlier.files()
            if self._replaces_own:
                self._folder.own = {**self._stale, MANIFEST: manifests.digest(self.out / MANIFEST)}
        if self.page is not None:
            self.use_page(self.page)
        self._folder.__enter__()
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
        """Refuse, before the work begins, to replace existing results; a name that ends in ``/`` is a whole folder."""
        self._folder.check_free(names)
        inputs = {os.path.realpath(path) for path in self._input_paths()}
        taken = [name for name in names if os.path.realpath(self.out / name) in inputs]
        if taken:
            raise CommandError(
                f"{some(taken)} in {str(self.out)!r} is an input, which would be replaced. Name another folder with "
                "--out.",
                Code.EXISTS,
            )
        self._names.update(names)
        self._check_page()

    def path(self, name: str) -> Path:
        """Path of a result while the run lasts; it moves into place at the end."""
        return self._folder.path(name)

    def page_path(self) -> Path:
        """Path of the page while the run lasts; it moves to its place with the results."""
        return self.path(self._page_name())

    def table_name(self, stem: str) -> str:
        """File name of a table of rows, in the chosen format."""
        return f"{stem}.{self[Tables].format}"

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
            from shapshift.price.statements import csv_text

            rows = zip(*(column.to_pylist() for column in table), strict=True)
            write_text(path, csv_text(table.column_names, rows, as_input=as_input))
            return

        import pyarrow.parquet as pq

        def write(file: BinaryIO) -> None:
            pq.write_table(table.replace_schema_metadata(), file, compression="zstd", write_page_checksum=True)

        write_atomically(path, write)

    def finish(self) -> None:
        """Write the manifest and move everything into place, a page that goes elsewhere last."""
        self._folder.check_whole()
        made = {name: manifests.digest(self.path(name)) for name in self._folder.names()}
        page = None if self.page is None else {"name": self.page.name, "sha256": made.pop(self._page_name())}
        self._names.update(made)
        self._check_page()
        manifest = Manifest(
            command=self.command,
            options=to_record(self._options, {name: entry["path"] for name, entry in self._inputs.items()}),
            inputs=self._inputs,
            parameters=self.parameters,
            seed=self.seed,
            versions=manifests.versions(),
            outputs=made,
            report=page,
        )
        with writing(self.out):
            write_text(self.path(MANIFEST), manifest.to_json())
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
        """Return the name of an input in the results: its bare name, or that of the first run if it is repeated."""
        return Path(self._called.get(name, self._inputs[name]["path"])).name

    def digests(self) -> dict[str, str]:
        """Digests of the inputs without their names, for people."""
        return {name.replace("_", " "): f"sha256 {entry['sha256'][:12]}" for name, entry in self._inputs.items()}

    def files(self) -> dict[str, str]:
        """Names and digests of the inputs, for people."""
        names = map(self.called, self._inputs)
        return {key: f"{name} ({digest})" for name, (key, digest) in zip(names, self.digests().items(), strict=True)}

    def _commit(self) -> None:
        """Move everything into place; a page inside the folder moves with the rest."""
        if self.page is None or self._page_name() != _PAGE:
            self._folder.commit(self._stale)
            return
        # An existing page is replaced only on request.
        page, move, target = self.page, os.replace if self[Output].force else move_new, destination(self.page)
        with self._folder.beside(_PAGE, target) as hidden:

            def place() -> None:
                with writing(target):
                    try:
                        move(hidden, target)
                    except FileExistsError:
                        raise _page_exists(page) from None

            self._folder.commit(self._stale, place)

    def _page_name(self) -> str:
        """Name of the page among the results until they are moved: its own name if it stays there."""
        assert self.page is not None
        target, folder = destination(self.page), Path(os.path.realpath(self.out))
        return target.relative_to(folder).as_posix() if target.is_relative_to(folder) else _PAGE

    def use_page(self, page: Path) -> None:
        """Return the path of the page; raises if it cannot be a file, or would replace anything but an earlier page."""
        if page.is_dir():
            raise CommandError(f"--report must name a file such as out.html. {str(page)!r} is a folder.")
        if page.suffix.lower() not in PAGE_ENDINGS:
            raise CommandError(f"--report must name a file that ends in .html, such as out.html. Got {str(page)!r}.")
        if Path(os.path.realpath(self.out)).is_relative_to(os.path.realpath(page)):
            raise CommandError(f"--report and --out must differ. Both name {str(page)!r}.")
        if not os.access(existing_parent(page), os.W_OK):
            raise CommandError(f"{str(page)!r} cannot be written: no permission in its folder.", Code.CANNOT_WRITE)
        if any(above.exists() and not above.is_dir() for above in page.absolute().parents):
            raise CommandError(f"--report must name a file in a folder. In {str(page)!r} a file stands for a folder.")
        self.page = page
        if self._page_name() != _PAGE:
            self._folder.check_free([self._page_name()])
        elif os.path.lexists(page) and not self[Output].force:
            raise _page_exists(page)
        self._check_page()

    def _check_page(self) -> None:
        """Refuse a page that would replace an input or a result of this very run."""
        if self.page is None:
            return
        name = self._page_name()
        folders = {name.rpartition("/")[0] for name in self._names} - {""}
        if name in (*self._names, MANIFEST) or name.rpartition("/")[0] in folders:
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

        for group, given in self._options.items():
            for path in (getattr(given, name) for name in recorded(group)):
                if isinstance(path, Path):
                    with suppress(OSError, ValueError):  # reading it raises an error that says what is wrong
                        yield from find_parts(path).files


#: Name among the results of a page that goes elsewhere.
_PAGE = ".page.html"


def _page_exists(page: Path) -> CommandError:
    return CommandError(f"{str(page)!r} exists already. Name another file with --report, or use --force.", Code.EXISTS)


def frame(columns: Mapping[str, Any]) -> Any:
    """Make a pyarrow table of arrays."""
    import pyarrow as pa

    return pa.table({name: pa.array(column, from_pandas=False) for name, column in columns.items()})


def _few(names: list[str]) -> list[str]:
    folders = list(dict.fromkeys(name.split("/")[0] + ("/" if "/" in name else "") for name in names))
    return folders if len(folders) <= 8 else [*folders[:7], f"and {len(folders) - 7} more"]
