"""Who is near: lists of nearest rows by an exact selection, over an inverted-file index, or by hashing."""

from shapshift.engine.search.exact import STRIP_ROWS, exact_search, list_room
from shapshift.engine.search.lists import FitCache, Lists, Search
from shapshift.engine.search.quick import SEARCHES, Proposals, quick_search

__all__ = [
    "SEARCHES",
    "STRIP_ROWS",
    "FitCache",
    "Lists",
    "Proposals",
    "Search",
    "exact_search",
    "list_room",
    "quick_search",
]
