"""The runner for studies of one's own, and tables as CSV and LaTeX."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from experiments.tables import ONE_PAGE, latex_table, write_table

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_a_table_is_written_as_csv_and_latex(tmp_path: Path) -> None:
    table = pd.DataFrame({"data_set": ["x & y", "50% $\\"], "n": [1, 2], "value": [0.123456789, float("nan")]})
    write_table(tmp_path / "new" / "a.b", table)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "new" / "a.b.csv"), table)
    lines = (tmp_path / "new" / "a.b.tex").read_text(encoding="utf-8").splitlines()
    assert lines == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"data\_set & n & value \\",
        r"\midrule",
        r"x \& y & 1 & 0.123457 \\",
        r"50\% \$\textbackslash  & 2 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_a_long_table_breaks_over_pages() -> None:
    assert "longtable" not in latex_table(pd.DataFrame({"n": range(ONE_PAGE)}))
    assert latex_table(pd.DataFrame({"n": range(ONE_PAGE + 1)})).startswith(r"\begin{longtable}")


@pytest.mark.parametrize("path", sorted(DOCS.glob("*/tables/*.tex")), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_latex_tables_hold_what_the_csv_holds(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == latex_table(pd.read_csv(path.with_suffix(".csv")))
