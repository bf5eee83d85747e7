"""Values of training rows that stay in a file."""

from shapshift.sharded._exact import exact_method
from shapshift.sharded._run import run_sharded

__all__ = ["exact_method", "run_sharded"]
