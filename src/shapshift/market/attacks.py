"""Tricks by which a seller may try to be paid more, applied to the offered rows."""

from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift._arrays import object_array
from shapshift.checks import inputs as check
from shapshift.exceptions import InputError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Noise of near-copies in standard deviations of each feature, and the part of the others' rows that is stolen.
NOISE, STOLEN = 0.3, 0.2
#: Noise just large enough to make rows differ.
TINY = 1e-6


class Offer(NamedTuple):
    """Training rows as sellers offer them.

    Attributes
    ----------
    X : ndarray or sparse matrix of shape (n_train, n_features)
        Features as numbers.
    y, owners : ndarray of shape (n_train,)
        Label and owner of each row.
    order : ndarray of shape (n_train,), optional
        Time of submission of each row: numbers or dates. By default rows were submitted one by one.
    values : ndarray of shape (n_train,), optional
        Value of each row; "hide bad rows" needs it.
    """

    X: Any
    y: npt.NDArray[Any]
    owners: npt.NDArray[Any]
    order: npt.NDArray[Any] | None = None
    values: Floats | None = None

    def with_rows(self, X: Any, y: npt.NDArray[Any], owner: Any) -> "Offer":
        """Return the offer with more rows of one owner, submitted after all others."""
        n = y.shape[0]
        order, both = self.ranks(), [self.X, X]
        return Offer(
            sparse.csr_array(sparse.vstack(both)) if sparse.issparse(self.X) else np.concatenate(both),
            np.concatenate([self.y, y]),
            np.concatenate([self.owners, _repeated(owner, n, self.owners.dtype)]),
            np.concatenate([order, np.full(n, order.max(initial=-1) + 1)]),
            None if self.values is None else np.concatenate([self.values, np.zeros(n)]),
        )

    def renamed(self, rows: Indices, owner: Any) -> "Offer":
        """Return the offer with some rows under the name of another owner."""
        owners = self.owners.astype(object)
        owners[rows] = _repeated(owner, rows.size, np.dtype(object))
        return self._replace(owners=owners, order=self.ranks())

    def ranks(self) -> Indices:
        """Return the order of submission as whole numbers."""
        if self.order is None:
            return np.arange(self.y.shape[0])
        return np.unique(self.order, return_inverse=True)[1].reshape(-1)

    def new_name(self, attacker: Any) -> Any:
        """Return an unused name."""
        taken = set(self.owners.tolist())
        if all(isinstance(name, Real) for name in taken):
            return int(max(taken)) + 1
        at = 2
        while f"{attacker} ({at})" in taken:
            at += 1
        return f"{attacker} ({at})"


class Move(NamedTuple):
    """Attacker, offer and random generator of one trick."""

    offer: Offer
    attacker: Any
    own: Indices
    others: Indices
    rng: np.random.Generator

    def add(self, X: Any, y: npt.NDArray[Any]) -> "Played":
        """Add rows to those of the attacker."""
        return self.offer.with_rows(X, y, self.attacker), (self.attacker,)

    def rename(self, rows: Indices) -> "Played":
        """Offer some rows of the attacker under a second name; None if one of the names would have no row."""
        if not 0 < rows.size < self.own.size:
            return None
        name = self.offer.new_name(self.attacker)
        return self.offer.renamed(rows, name), (self.attacker, name)


#: Result of an attack: None if it does not apply.
Played = tuple[Offer, tuple[Any, ...]] | None


def _copy(move: Move, rows: Indices | None = None, times: int = 1, noise: float = 0.0) -> Played:
    X, y = move.offer.X, move.offer.y
    rows = np.tile(move.own if rows is None else rows, times)
    if rows.size == 0:
        return None
    return move.add(_with_noise(X, rows, noise, move.rng) if noise else X[rows], y[rows])


def _steal(move: Move, noise: float = 0.0) -> Played:
    if move.others.size == 0:
        return None
    stolen = move.rng.choice(move.others, max(1, round(STOLEN * move.others.size)), replace=False)
    return _copy(move, np.sort(stolen), noise=noise)


def _random_rows(move: Move) -> Played:
    X, y, n = move.offer.X, move.offer.y, move.own.size
    columns = sparse.csc_array(X) if sparse.issparse(X) else X
    drawn = [columns[:, block][move.rng.integers(y.shape[0], size=n)] for block in _blocks(columns)]
    made = sparse.csr_array(sparse.hstack(drawn)) if sparse.issparse(X) else np.concatenate(drawn, axis=1)
    return move.add(made, y[move.rng.integers(y.shape[0], size=n)])


def _mixup(move: Move) -> Played:
    X, y = move.offer.X, move.offer.y
    labels = np.unique(y[move.own], return_inverse=True)[1].reshape(-1)
    first, second = [], []
    for label in range(labels.max() + 1):
        rows = move.rng.permutation(move.own[labels == label])
        if rows.size > 1:  # each row with the next one of a random order
            first.append(rows)
            second.append(np.roll(rows, 1))
    if not first:
        return None
    a, b = np.concatenate(first), np.concatenate(second)
    two = _two_valued(X)
    if sparse.issparse(X):
        made = X[a] @ sparse.diags_array((1 + two) / 2) + X[b] @ sparse.diags_array((1 - two) / 2)
        return move.add(sparse.csr_array(made), y[a])
    return move.add(np.where(two, X[a], (X[a] + X[b]) / 2), y[a])


def _split(move: Move) -> Played:
    return move.rename(np.sort(move.rng.permutation(move.own)[: move.own.size // 2]))


def _merge(move: Move) -> Played:
    names = list(dict.fromkeys(move.offer.owners[move.others].tolist()))
    if not names:
        return None
    partner = names[move.rng.integers(len(names))]
    rows = np.flatnonzero(_is(move.offer.owners, partner))
    return move.offer.renamed(rows, move.attacker), (move.attacker, partner)


def _hide(move: Move) -> Played:
    if move.offer.values is None:
        raise InputError("The 'offer' parameter of play must have the values of its rows for 'hide bad rows'.")
    return move.rename(move.own[move.offer.values[move.own] < 0])


class Attack(NamedTuple):
    """A trick: its description, its function, and whether it is random."""

    words: str
    play: Callable[[Move], Played]
    drawn: bool


#: Tricks by name; new ones come last, since draws depend on their positions.
ATTACKS = {
    "copy": Attack("adds a copy of each of its rows", _copy, drawn=False),
    "copy x4": Attack("adds four copies of each of its rows", lambda move: _copy(move, times=4), drawn=False),
    "steal": Attack("adds copies of 20% of the others' rows", _steal, drawn=True),
    "near-copy": Attack(
        "adds its own rows with noise of 0.3 standard deviations", lambda move: _copy(move, noise=NOISE), drawn=True
    ),
    "steal with noise": Attack(
        "adds 20% of the others' rows with noise of 0.3 standard deviations",
        lambda move: _steal(move, noise=NOISE),
        drawn=True,
    ),
    "random rows": Attack("doubles its rows with ones drawn column by column", _random_rows, drawn=True),
    "mixup": Attack("adds averages of pairs of its rows with equal labels", _mixup, drawn=True),
    "split": Attack("splits its rows at random between two names", _split, drawn=True),
    "merge": Attack("sells under one name with another seller", _merge, drawn=True),
    "hide bad rows": Attack("moves its rows of negative value to a second name", _hide, drawn=False),
    "copy x10, tiny noise": Attack(
        "adds its rows ten times with noise of a millionth of a standard deviation",
        lambda move: _copy(move, times=10, noise=TINY),
        drawn=True,
    ),
}


def play(attack: str, offer: Offer, attacker: Any, random_state: Any = 0) -> tuple[Offer, tuple[Any, ...]]:
    """Play a trick.

    Parameters
    ----------
    attack : str
        A name in ``ATTACKS``.
    offer : Offer
    attacker : hashable
        The owner who plays it.
    random_state : int, sequence of int or Generator, default=0

    Returns
    -------
    offer : Offer
        The changed offer, with new rows at the end and later than all others. If the trick does not apply, the given
        offer itself: stealing or merging without other sellers, mixing or splitting a single row, hiding bad rows
        without any.
    names : tuple
        Owners, including new ones, whose pay belongs to the attacker, or to both sellers who merge. The gain is the sum
        of their pay after the trick minus that before; names without rows are paid nothing.

    Notes
    -----
    Noise is normal, in standard deviations of each feature over all rows. Random rows take every feature and the label
    from a newly drawn row. Features with two values are unchanged in near-copies, and taken from the first row in an
    average. In random rows, neighbouring two-valued features that are never set together are drawn together, so that
    one-hot columns stay one-hot. In sparse rows, zeros get no noise.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift.market.attacks import Offer, play
    >>> offer = Offer(np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 1]), np.array(["ann", "bob", "bob"]))
    >>> after, names = play("copy", offer, "bob")
    >>> after.X[:, 0].tolist(), after.owners.tolist(), names
    ([0.0, 1.0, 2.0, 1.0, 2.0], ['ann', 'bob', 'bob', 'bob', 'bob'], ('bob',))
    """
    check.check_choice("play", "attack", attack, tuple(ATTACKS))
    mine = _is(offer.owners, attacker)
    if not mine.any():
        known = list(dict.fromkeys(offer.owners.tolist()))
        raise InputError(
            f"The 'attacker' parameter of play must be one of the owners: {check.some(known)}. Got "
            f"{check.quoted(attacker)} instead."
        )
    attacker = offer.owners[mine].tolist()[0]  # as it is in the offer, not a NumPy scalar
    rows = offer._replace(X=sparse.csr_array(offer.X)) if sparse.issparse(offer.X) else offer
    rng = np.random.default_rng(random_state)
    played = ATTACKS[attack].play(Move(rows, attacker, np.flatnonzero(mine), np.flatnonzero(~mine), rng))
    return (offer, (attacker,)) if played is None else played


def _is(owners: npt.NDArray[Any], name: Any) -> Flags:
    return np.fromiter((owner == name for owner in owners.tolist()), dtype=np.bool_, count=owners.shape[0])


def _repeated(owner: Any, n: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return object_array([owner] * n) if dtype.kind == "O" else np.array([owner] * n)


def _with_noise(X: Any, rows: Indices, noise: float, rng: np.random.Generator) -> Any:
    """Return some of the rows with normal noise in every feature that has more than two values."""
    made = X[rows]  # a copy
    if sparse.issparse(X):
        squares = X.multiply(X).mean(axis=0) - np.asarray(X.mean(axis=0)) ** 2
        spread = np.sqrt(np.maximum(np.asarray(squares).reshape(-1), 0.0)) * ~_two_valued(X)
        made.data += noise * spread[made.indices] * rng.standard_normal(made.data.size)
        return made
    return made + noise * np.where(_two_valued(X), 0.0, X.std(axis=0)) * rng.standard_normal(made.shape)


def _two_valued(X: Any) -> Flags:
    """Mask of features with at most two values; in sparse rows, at most one besides zero."""
    if sparse.issparse(X):
        columns = sparse.csc_array(X)
        low, high = np.full(X.shape[1], np.inf), np.full(X.shape[1], -np.inf)
        of = np.repeat(np.arange(X.shape[1]), np.diff(columns.indptr))
        np.minimum.at(low, of, columns.data)
        np.maximum.at(high, of, columns.data)
        return np.asarray(low >= high)
    return np.asarray(((X.min(axis=0) == X) | (X.max(axis=0) == X)).all(axis=0))


def _blocks(X: Any) -> list[slice]:
    """Features that are drawn together: groups of neighbouring two-valued features that no row sets together."""
    two, starts = _two_valued(X), [0]
    taken = np.zeros(X.shape[0], dtype=np.bool_)
    stored = sparse.issparse(X)
    for j in range(X.shape[1]):
        on = X.indices[X.indptr[j] : X.indptr[j + 1]] if stored else X[:, j] > X[:, j].min()
        if j and (not two[j] or not two[j - 1] or taken[on].any()):
            starts.append(j)
            taken[:] = False
        taken[on] = True
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], X.shape[1]], strict=True)]
