"""Lists of nearest rows, from an exact selection, an inverted-file index, hashing, or a given neighbour graph."""

from shapshift.engine.search.exact import STRIP_ROWS, exact_search, list_room
from shapshift.engine.search.lists import FitCache, Search, cut_lists, join_lists
from shapshift.engine.search.quick import SEARCHES, Proposals, graph_search, quick_search
from shapshift.kernels.nearest import Lists

__all__ = [
    "SEARCHES",
    "STRIP_ROWS",
    "FitCache",
    "Lists",
    "Proposals",
    "Search",
    "cut_lists",
    "exact_search",
    "graph_search",
    "join_lists",
    "list_room",
    "quick_search",
]
