"""Events of a ledger: their canonical text, the chain of their digests, and the check of a whole chain.

Nothing here needs a database: an auditor checks an exported chain with :func:`verify_export`, or with any program that
knows JSON and SHA-256. The line of an event is the canonical JSON object of its fields, and its digest is the SHA-256
of that line in UTF-8, without the line break::

    {"body":{...},"kind":"...","previous":"...","round":"...","seller":"...","sequence":1,"time":"..."}

``previous`` is the digest of the event before, 64 zeros for the first one.
"""

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NoReturn

from shapshift._progress import progress_bar
from shapshift.checks.names import quoted, visible
from shapshift.exceptions import InputError, LedgerError
from shapshift.io.shown import Shown

#: Digest before the first event.
START = "0" * 64
#: Version of the layout of tables, lines and exports.
FORMAT = 1
#: Most bytes of a body; far more than a round of 100,000 sellers needs.
MOST_BODY = 64 * 2**20
#: Most characters; short enough for the indexes of every database.
LONGEST = {"kind": 50, "round": 200, "seller": 500}
# Events checked at a time, and characters of their bodies read at a time.
PAGE = 500
_TOGETHER = 2**18

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MONEY = ("budget", "reserve", "unallocated")
# Patterns of canonical text, integers and lists of digests.
_PLAIN_TEXT = r'"[^"\\\x00-\x1f]*"'
_PLAIN_INTEGER = "(?:0|-?[1-9][0-9]{0,17})"
_PLAIN_DIGESTS = r'\["([0-9a-f]{64}(?:","[0-9a-f]{64})*)"\]'
# Most kinds of events whose bodies are recognised by a pattern, and most characters of a body that makes a pattern.
_MOST_KINDS, _LONGEST_PLAIN = 20, 1000


def _no_float(text: str) -> NoReturn:
    raise InputError(f"{text} is not an integer: amounts are integers of the minor unit, other numbers strings")


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_decode = json.JSONDecoder(parse_float=_no_float, parse_constant=_no_float).decode

# Sequence, kind, round, seller, time, body and digest, as stored.
Row = tuple[int, str, str, str, str, str, str]


@dataclass(frozen=True)
class Event(Shown):
    """One entry of a ledger.

    Attributes
    ----------
    sequence : int
        1 for the first event; without gaps.
    kind : str
        Kind of event, such as "open", "submit" or "close".
    round : str
        Name of the round; empty for events without one.
    seller : str
        Name of the seller; empty for events without one.
    time : str
        UTC time of the machine that wrote it, as in "2026-01-31T12:00:00.000000Z"; never earlier than that of the
        previous event.
    body : str
        Canonical JSON object: sorted keys, no spaces, no floats.
    previous, digest : str
        SHA-256 of the line of the previous event, and of this one.
    """

    sequence: int
    kind: str
    round: str
    seller: str
    time: str
    body: str
    previous: str
    digest: str

    @property
    def content(self) -> dict[str, Any]:
        """The parsed body."""
        return read_body(self.body)


@dataclass(frozen=True)
class Verification(Shown):
    """Result of a check of a whole chain.

    Attributes
    ----------
    events, rounds, closed, payments, blobs : int
        Numbers of events, opened rounds, closed rounds, payments in closed rounds, and blobs, up to the first fault.
    head : str
        Digest of the last event that was checked.
    fault : str or None
        The first fault, in words; None without faults.
    """

    events: int
    rounds: int
    closed: int
    payments: int
    blobs: int
    head: str
    fault: str | None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.fault is None


def digest_of(data: bytes) -> str:
    """SHA-256 in hexadecimal, the name of a blob.

    Examples
    --------
    >>> digest_of(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def canonical(content: object) -> str:
    """Write canonical JSON for hashing: sorted keys, no spaces, text unescaped.

    Raises
    ------
    InputError
        For floats, keys that are not text, text that is not Unicode, and types that JSON does not have.

    Examples
    --------
    >>> canonical({"b": [1, None], "a": "é"})
    '{"a":"é","b":[1,null]}'
    """
    try:
        _check_content(content, "body")
        text = _encode(content)
        text.encode()
    except RecursionError:
        raise InputError("The 'body' parameter of append is nested too deeply. Store the table as a blob.") from None
    except UnicodeEncodeError as error:
        raise InputError(
            f"The 'body' parameter of append has the character {error.object[error.start]!r}, half of a pair, which "
            "UTF-8 cannot write. Repair the text."
        ) from None
    return text


def _check_content(content: object, place: str) -> None:
    """Refuse content without a canonical form, naming its place."""
    if content is None or isinstance(content, bool | str):
        return
    if isinstance(content, int):
        if abs(content) >= 2**63:
            raise InputError(f"{place} of an event must be an integer of 64 bits; write {content} as text.")
        return
    if isinstance(content, Mapping):
        for key, entry in content.items():
            if not isinstance(key, str):
                raise InputError(f"Keys in {place} of an event must be text. Got {quoted(key)} instead.")
            _check_content(entry, f"{place}[{key!r}]")
        return
    if isinstance(content, list | tuple):
        for i, entry in enumerate(content):
            _check_content(entry, f"{place}[{i}]")
        return
    raise InputError(
        f"{place} of an event must be text, an integer, True, False, None, a list or a mapping. Got {quoted(content)} "
        "instead: write amounts as integers of the minor unit and other numbers as text."
    )


def check_body(body: object) -> None:
    """Refuse an invalid event body."""
    if not isinstance(body, Mapping) or "blobs" in body:
        raise InputError(
            "The 'body' parameter of append must be a mapping without the key 'blobs', which the ledger writes. "
            f"Got {'that key' if isinstance(body, Mapping) else type(body).__name__} instead."
        )


def read_body(text: object) -> dict[str, Any]:
    """Parse a body, refusing any text that is not canonical.

    Raises
    ------
    LedgerError
        If it is not canonical JSON.
    """
    try:
        content = _decode(text) if isinstance(text, str) else None
        same = content is not None and _encode(content) == text
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"its body is not valid ledger JSON ({_short(error)})") from None
    if not isinstance(content, dict):
        raise LedgerError("its body is not a JSON object")
    if not same:
        raise LedgerError("its body is not canonical JSON: sorted keys, each once, without spaces")
    return content


def line(sequence: int, kind: str, round: str, seller: str, time: str, body: str, previous: str) -> str:
    """Return the line of an event; its SHA-256 is the digest."""
    return (
        f'{{"body":{body},"kind":{_encode(kind)},"previous":"{previous}","round":{_encode(round)},'
        f'"seller":{_encode(seller)},"sequence":{sequence},"time":"{time}"}}'
    )


def check_name(name: str, value: object) -> str:
    """Refuse a kind, round or seller that some database could not store."""
    if not isinstance(value, str):
        raise InputError(f"The {name!r} parameter of append must be text. Got {type(value).__name__} instead.")
    if len(value) > LONGEST[name] or "\0" in value or (name == "kind" and not value):
        at_least = "1 to" if name == "kind" else "at most"
        raise InputError(
            f"The {name!r} parameter of append must have {at_least} {LONGEST[name]} characters, none of them NUL. "
            f"Got {len(value):,} characters: {_short(value)}."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"The {name!r} parameter of append must be Unicode text. Got {value!r} instead.") from None
    return value


def is_digest(text: object) -> bool:
    """Whether a text is a SHA-256 in lower-case hexadecimal digits."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def check_payments(content: Mapping[str, Any]) -> int:
    """Check that the payments of a close add up to its budget, and count them.

    Raises
    ------
    LedgerError
        If they do not add up, or the body is malformed.
    """
    payments = content.get("payments")
    if not isinstance(payments, list | tuple):
        raise LedgerError("its body has no list of payments")
    if not _are_payments(payments):
        wrong = next(payment for payment in payments if not _are_payments([payment]))
        raise LedgerError(f"the payment {_short(wrong)} is not a pair of seller and amount in whole minor units")
    if len(dict(payments)) < len(payments):
        raise LedgerError("its payments name a seller twice")
    total = sum(map(itemgetter(1), payments))
    for name in _MONEY:
        if type(content.get(name)) is not int:
            raise LedgerError(f"its {name} is not an integer: {_short(content.get(name))}")
    reserve, unallocated, budget = content["reserve"], content["unallocated"], content["budget"]
    if total + reserve + unallocated != budget:
        raise LedgerError(
            f"its payments ({total:,}), reserve ({reserve:,}) and unallocated money ({unallocated:,}) add up to "
            f"{total + reserve + unallocated:,}, not to the budget of {budget:,}"
        )
    return len(payments)


def _are_payments(payments: Sequence[Any]) -> bool:
    """Whether all are pairs of text and integer; without a Python loop, since there can be millions."""
    return (
        set(map(type, payments)) <= {list, tuple}
        and set(map(len, payments)) <= {2}
        and set(map(type, map(itemgetter(0), payments))) <= {str}
        and set(map(type, map(itemgetter(1), payments))) <= {int}
    )


def _short(value: object) -> str:
    """Shorten a value for a message."""
    text = str(value) if isinstance(value, Exception) else repr(value)
    return visible(text if len(text) <= 80 else f"{text[:77]}...", keep="")


class Chain:
    """A chain, checked in batches from its first event on.

    Attributes
    ----------
    events, payments : int
    opened, closed : set of str
        Rounds.
    blobs : set of bytes
        Digests of the blobs that events name.
    head : str
        Digest of the last event.

    Parameters
    ----------
    noted : str or None
        A digest that must occur, such as the noted digest of an earlier last event.
    """

    def __init__(self, noted: str | None = None) -> None:
        if noted is not None and not is_digest(noted):
            raise InputError(
                f"The 'head' parameter of verify must be the digest of an event, 64 hexadecimal digits. Got {noted!r}."
            )
        self.events = 0
        self.payments = 0
        self.opened: set[str] = set()
        self.closed: set[str] = set()
        self.blobs: set[bytes] = set()
        self.head = START
        self.missing = noted if noted != START else None
        self._time = ""
        self._spelled: dict[str, str] = {}
        self._plain: dict[str, re.Pattern[str] | None] = {"open": None, "close": None}
        # A random mark cannot occur in any body, so several bodies can be parsed as one list.
        self._mark = secrets.randbits(120)

    def extend(self, rows: Sequence[Row]) -> None:
        """Check the next events.

        Raises
        ------
        LedgerError
            Naming the first event that is wrong.
        """
        fault = None
        head, spelled, sha256 = self.head, self._spelled, hashlib.sha256
        for expected, (sequence, kind, round_, seller, time, body, digest) in enumerate(rows, self.events + 1):
            try:
                if sequence != expected:
                    raise LedgerError(f"follows event {expected - 1}: events are missing, or not in order")
                try:
                    # As in line(), with names written once.
                    text = (
                        f'{{"body":{body},"kind":{spelled[kind]},"previous":"{head}","round":{spelled[round_]},'
                        f'"seller":{spelled[seller]},"sequence":{sequence},"time":"{time}"}}'
                    )
                except KeyError:
                    self._spell(kind, round_, seller)
                    text = line(sequence, kind, round_, seller, time, body, head)
                head = sha256(text.encode()).hexdigest()
                if head != digest:
                    raise LedgerError(
                        "does not have its digest: it, or an event before it, was changed after it was written"
                    )
                if time != self._time:
                    if _TIME.fullmatch(str(time)) is None:
                        raise LedgerError(f"has no time in UTC: {_short(time)}")
                    if time < self._time:
                        raise LedgerError(f"is of {time}, earlier than the event before, of {self._time}")
                    self._time = time
            except (LedgerError, UnicodeEncodeError) as error:
                fault = LedgerError(f"event {_short(sequence)} {_short_error(error)}")
                rows = rows[: expected - 1 - self.events]
                break
        if rows:
            self.events, self.head = rows[-1][0], rows[-1][-1]
        if self.missing is not None and any(row[-1] == self.missing for row in rows):
            self.missing = None
        self._extend_contents(rows)
        if fault is not None:
            raise fault

    def finish(self) -> None:
        """Check properties of the whole chain.

        Raises
        ------
        LedgerError
            If the noted digest did not occur.
        """
        if self.missing is not None:
            raise LedgerError(
                f"no event has the noted digest {self.missing}: events were cut off the end after event {self.events}, "
                "or the chain was rewritten"
            )

    def result(self, blobs: int, fault: str | None) -> Verification:
        """Return the result."""
        return Verification(self.events, len(self.opened), len(self.closed), self.payments, blobs, self.head, fault)

    def _spell(self, *names: object) -> None:
        if len(self._spelled) > 100_000:
            self._spelled.clear()
        for name, what in zip(names, ("kind", "round", "seller"), strict=True):
            if not (isinstance(name, str) and len(name) <= LONGEST[what] and "\0" not in name):
                raise LedgerError(f"has an invalid {what}: {_short(name)}")
            self._spelled[name] = _encode(name)

    def _extend_contents(self, rows: Sequence[Row]) -> None:
        """Check the bodies of events with correct digests."""
        rows = self._unlike(rows)
        for (sequence, kind, round_, _, _, body, _), content in zip(rows, self._contents(rows), strict=True):
            try:
                names = content.get("blobs")
                if names is not None:
                    if not (isinstance(names, list) and all(map(is_digest, names))):
                        raise LedgerError("its blobs are not a list of digests")
                    self.blobs.update(map(bytes.fromhex, names))
                if kind == "open":
                    if round_ in self.opened:
                        raise LedgerError(f"the round {_short(round_)} was already open")
                    self.opened.add(round_)
                elif kind == "close":
                    if round_ not in self.opened:
                        raise LedgerError(f"the round {_short(round_)} was never opened")
                    if round_ in self.closed:
                        raise LedgerError(f"the round {_short(round_)} was already closed")
                    self.closed.add(round_)
                    self.payments += check_payments(content)
            except LedgerError as error:
                raise LedgerError(f"event {sequence} is wrong: {error}") from None
            if kind not in self._plain and len(self._plain) < _MOST_KINDS:
                self._plain[kind] = _plain_pattern(content) if len(body) <= _LONGEST_PLAIN else None

    def _unlike(self, rows: Sequence[Row]) -> list[Row]:
        """Events whose bodies match no known canonical pattern; notes the blobs of the others."""
        plain, rest = self._plain, []
        for row in rows:
            pattern, body = plain.get(row[1]), row[5]
            found = pattern.fullmatch(body) if pattern is not None and type(body) is str else None
            if found is None:
                rest.append(row)
            elif found.lastindex:
                self.blobs.update(map(bytes.fromhex, found[1].split('","')))
        return rest

    def _contents(self, rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
        """Parse bodies; many short ones as one list, which is several times faster."""
        try:
            text = f"[{f',{self._mark},'.join([row[5] for row in rows])}]"
            read = _decode(text) if len(text) <= _TOGETHER else []
            contents, marks = read[::2], read[1::2]
            together = (
                marks == [self._mark] * (len(rows) - 1)
                and all(type(content) is dict for content in contents)
                and _encode(read) == text
            )
        except (TypeError, ValueError, RecursionError):
            together = False
        if together:
            yield from contents
            return
        for row in rows:
            try:
                yield read_body(row[5])
            except LedgerError as error:
                raise LedgerError(f"event {row[0]} is wrong: {error}") from None


def _plain_pattern(content: Mapping[str, Any]) -> re.Pattern[str] | None:
    """Pattern of bodies with these keys, plain text and integers as values, and a list of blobs; None for others.

    A match shows that a body is canonical several times faster than parsing it.
    """
    entries = []
    for key, entry in content.items():
        plain = {str: _PLAIN_TEXT, int: _PLAIN_INTEGER}.get(type(entry))
        if key == "blobs":
            plain = _PLAIN_DIGESTS
        if plain is None:
            return None
        entries.append(f"{re.escape(_encode(key))}:{plain}")
    return re.compile(rf"\{{{','.join(entries)}\}}")


def _short_error(error: Exception) -> str:
    return "has text that is not Unicode" if isinstance(error, UnicodeEncodeError) else str(error)


def verify_export(
    folder: str | os.PathLike[str], head: str | None = None, progress: bool | None = None
) -> Verification:
    """Check an exported ledger, without a database.

    Parameters
    ----------
    folder : path-like
        Folder written by :meth:`shapshift.market.ledger.Ledger.export`.
    head : str or None
        Digest of an event that the chain must contain, such as one the operator published. Without it, events removed
        from the end cannot be detected.
    progress : bool or None
        None shows a bar in terminals and notebooks.

    Returns
    -------
    Verification
    """
    home = Path(folder)
    chain = Chain(head)
    try:
        if not all((home / name).is_file() for name in ("ledger.json", "events.jsonl")):
            raise LedgerError("one of them is missing")
        if any((home / name).is_symlink() for name in ("ledger.json", "events.jsonl", "blobs")):
            raise LedgerError("one of them, or blobs, is a link")
        with open(home / "ledger.json", "rb") as file:
            note = read_body(file.read(10_000).decode().rstrip("\n"))
        size = (home / "events.jsonl").stat().st_size
    except (OSError, ValueError) as error:
        raise LedgerError(
            f"{str(home)!r} is not an exported ledger, a folder with ledger.json and events.jsonl ({_short(error)})."
        ) from None
    if note.get("format") != FORMAT:
        raise LedgerError(
            f"{str(home)!r} has the format {_short(note.get('format'))}, and this version of shapshift reads "
            f"{FORMAT}. Install a newer version."
        )
    blobs = 0
    fault = None
    try:
        with progress_bar("Verifying", size, progress) as advance, open(home / "events.jsonl", "rb") as file:
            lines = iter(lambda: file.readline(MOST_BODY + 2**16), b"")
            while page := list(islice(lines, PAGE)):
                chain.extend(list(_exported_rows(page, chain)))
                advance(sum(map(len, page)))
        if chain.head != note.get("head"):
            raise LedgerError(f"the last event is not the one that ledger.json names, {_short(note.get('head'))}")
        if chain.events != note.get("events"):
            raise LedgerError(f"there are {chain.events:,} events, and ledger.json says {_short(note.get('events'))}")
        chain.finish()
        for digest in sorted(chain.blobs):
            _check_blob(home / "blobs" / digest.hex())
            blobs += 1
        for path in (home / "blobs").glob("*"):
            if not (is_digest(path.name) and bytes.fromhex(path.name) in chain.blobs):
                raise LedgerError(f"blobs/{visible(path.name, keep='')} is named by no event")
    except LedgerError as error:
        fault = str(error)
    return chain.result(blobs, fault)


def _exported_rows(lines: Iterable[bytes], chain: Chain) -> Iterable[Row]:
    """Parse lines; the digest of each is computed from the line as it is."""
    fields = ("sequence", "kind", "round", "seller", "time")
    sequence, previous = chain.events, chain.head
    for raw in lines:
        sequence += 1
        try:
            text = raw.decode()
            if not text.endswith("\n"):
                raise LedgerError("its line does not end with a line break")
            event = read_body(text[:-1])
            if event.keys() != {*fields, "body", "previous"}:
                raise LedgerError(f"its line has the keys {_short(sorted(event))}")
            if not all(isinstance(event[name], str) for name in fields[1:]):
                raise LedgerError("its kind, round, seller and time are not all text")
            if event["previous"] != previous:
                raise LedgerError("it does not name the digest of the event before: one of them was changed")
        except (LedgerError, UnicodeDecodeError) as error:
            raise LedgerError(f"event {sequence} is wrong: {_short(error)}") from None
        previous = digest_of(raw[:-1])
        yield (*(event[name] for name in fields), _encode(event["body"]), previous)


def _check_blob(path: Path) -> None:
    """Refuse an exported blob that is missing or changed."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise LedgerError(f"the blob {path.name} is not a regular file")
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LedgerError(f"the blob {path.name} cannot be read: {error.strerror}") from None
    if found != path.name:
        raise LedgerError(f"the blob {path.name} was changed")
