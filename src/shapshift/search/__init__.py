"""Who is near: lists of nearest rows by an exact selection, over an inverted-file index, or by hashing."""

from shapshift.search.exact import STRIP_ROWS, exact_search, list_room
from shapshift.search.lists import Lists, Search, SearchCache
from shapshift.search.quick import SEARCHES, Proposals, quick_search

__all__ = [
    "SEARCHES",
    "STRIP_ROWS",
    "Lists",
    "Proposals",
    "Search",
    "SearchCache",
    "exact_search",
    "list_room",
    "quick_search",
]
