"""Errors that are raised on purpose: some input is invalid, and the message says what to do."""


class InputError(ValueError, TypeError):
    """An argument, option, table or file is invalid.

    It is both a ``ValueError`` and a ``TypeError``. Any other error of those kinds is a bug.

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> from shapshift.exceptions import InputError
    >>> try:
    ...     KNNShapley(n_neighbors=0).fit([[0.0], [1.0]], ["a", "b"])
    ... except InputError as error:
    ...     print(error)
    The 'n_neighbors' parameter of KNNShapley must be at least 1. Got 0 instead.
    """


class MissingLibraryError(InputError, ImportError):
    """An optional library is not installed; the message says how to install it."""


class LedgerError(InputError):
    """A ledger cannot be opened, is damaged, or refuses an event; or its database does not answer."""
