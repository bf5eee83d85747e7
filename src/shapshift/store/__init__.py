"""Valuations kept up to date while validation points and training rows are added and removed."""

from shapshift.store._store import ValuationStore

__all__ = ["ValuationStore"]
