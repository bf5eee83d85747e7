"""Valuations that are kept up to date: validation points and training rows come and go, and little is done again."""

from shapshift.store._store import ValuationStore

__all__ = ["ValuationStore"]
