"""Settings shared by all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sklearn.datasets
from hypothesis import settings

# Programs that test_gpu.py starts; they cannot be imported without Triton.
collect_ignore = ["gpu_checks.py", "gpu_kernels.py"]

# The first call compiles or loads kernels, which says nothing about the example that happened to trigger it.
# Derandomised: a red run stays red when it is repeated.
settings.register_profile("shapshift", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("shapshift")


# A shell that starts the tests in the background ignores SIGINT, and so would every program that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("ci") and os.environ.get("CI") != "true":
        pytest.skip("takes long: set the environment variable CI=true to run it, as .ci/run does")


@pytest.fixture
def no_data_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the user's folders nor the network: a test that fetches says so by replacing the fetch."""
    monkeypatch.setenv("SHAPSHIFT_TEST_DATA", os.environ.get("SHAPSHIFT_DATA", ""))
    monkeypatch.delenv("SHAPSHIFT_DATA", raising=False)
    monkeypatch.setenv("SHAPSHIFT_CACHE", str(tmp_path / "cache"))

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", refuse)
    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups", refuse)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server for this session."""
    import postgres

    if reason := postgres.missing():
        pytest.skip(reason)
    with postgres.server(fsync="off") as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """URL of an empty schema, for one test."""
    import postgres

    with postgres.schema(postgres_server) as url:
        yield url
