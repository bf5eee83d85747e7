"""What the page says about the validation rows: the sections of the report that are about them, and single points."""

from typing import Any

import numpy as np

from shapshift.app.rows import number
from shapshift.app.study import LISTED, Study
from shapshift.design import entropy_profile
from shapshift.exceptions import InputError
from shapshift.report._sections import Section, make_sections
from shapshift.report._words import Results

#: Sections of the report that are about the validation rows.
_SECTIONS = ("trust", "boundary", "shift", "neighbours")
#: Rows up to which the profile is computed without being asked.
_PROFILED = 200_000


def answer(study: Study) -> dict[str, Any]:
    """Return reliability, boundary, what noise changes, and the points with the most influence."""
    valuation = study.valuation
    if valuation is None:
        raise InputError("The rows have no values yet.")
    results = Results(valuation, study.audit, None, None, None, None)
    sections = [section for section in make_sections(results, None, None) if section.id in _SECTIONS]
    influence = study.influence
    return {
        "sections": [_facts(section) for section in sections],
        "audited": study.audit is not None,
        "verdict": None if study.audit is None else study.audit.finding,
        "influence": None if influence is None else _points(study),
    }


def profile(study: Study) -> dict[str, Any]:
    """Return how far the validation rows cover the boundary between classes as the training rows do."""
    source = study.source
    if source.task != "class" or source.is_one_table or study.rows.n > _PROFILED:
        return {}
    metric = getattr(source.fit(), "metric", "euclidean")
    found = entropy_profile(source.X, source.y, source.X_val, source.y_val, metric=metric)
    columns = [found.validation.levels, found.validation.shares, found.training.shares]
    return {
        "verdict": found.verdict,
        "representative": found.representative,
        "levels": [[float(part[k]) for part in columns] for k in range(columns[0].size)],
        "classes": [
            {"label": str(label), "validation": share, "training": found.training.class_shares[label]}
            | {"boundary": number(found.validation.class_boundary[label])}
            for label, share in found.validation.class_shares.items()
        ][:50],
    }


def _points(study: Study) -> list[dict[str, Any]]:
    source, found = study.source, study.influence
    names = np.arange(source.y_val.size) if source.ids_val is None else source.ids_val
    order = np.argsort(-np.nan_to_num(found.change), kind="stable")[:LISTED]
    boundary = None if study.valuation is None else study.valuation.boundary
    return [
        {"position": int(k), "id": str(names[k]), "label": str(source.y_val[k])}
        | {"change": number(float(found.change[k])), "agreement": number(float(found.agreement[k]))}
        | {"flips": int(found.flips[k]), "boundary": boundary is not None and bool(boundary[k])}
        for k in order.tolist()
    ]


def _facts(section: Section) -> dict[str, Any]:
    """Return a section as the page draws it: words, charts, and the numbers behind these."""
    return {
        "id": section.id,
        "title": section.title,
        "conclusion": section.conclusion,
        "notes": list(section.notes),
        "charts": [
            {
                "id": chart.id,
                "title": chart.title,
                "kind": chart.kind,
                "data": chart.data,
                "caption": chart.caption,
                "alternative": chart.alternative,
                "columns": [str(name) for name in chart.table.columns],
                "rows": [[str(cell) for cell in row] for row in chart.table.rows],
            }
            for chart in section.charts
        ],
    }
