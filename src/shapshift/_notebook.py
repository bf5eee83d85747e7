"""HTML of results in notebooks: lines, tables and a small picture."""

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from shapshift._facts import audit_facts, explanation_facts, value_facts
from shapshift.audit import PointInfluence, ShiftAudit
from shapshift.checks.names import visible
from shapshift.cleaning import Decisions
from shapshift.cleaning.effect import CleaningEffect
from shapshift.cleaning.revaluation import Revalued
from shapshift.correct import CorrectionEvaluation, CorrectionReport, PosteriorReport
from shapshift.correct.prior import NoiseEstimate
from shapshift.correct.rehearsal import Rehearsal
from shapshift.data.dataset import Dataset
from shapshift.design import DesignResult, EntropyProfile, ProfileComparison
from shapshift.design.labels import LabelSuggestions
from shapshift.duplicates import Duplicates
from shapshift.evaluation import ValuationComparison, ValuationEvaluation
from shapshift.exceptions import InputError
from shapshift.knn.explain import Explanation
from shapshift.knn.interactions import Interactions
from shapshift.market.chain import Event, Verification
from shapshift.market.rounds import Closed, Market, Terms, Verified
from shapshift.market.stress import StressTest
from shapshift.mechanism import CaseOne, CaseTwo, NoiseDemo
from shapshift.price import (
    Allocation,
    Clusters,
    InfluenceAudit,
    OwnerValues,
    PayoutAudit,
    Policy,
    Privacy,
    Rule,
    ValidationAttack,
)
from shapshift.report._format import cell, figure
from shapshift.report._page import fill_template
from shapshift.sampled import FederatedValues, ProxyValuation
from shapshift.store import ValuationStore
from shapshift.suspects import Suspects
from shapshift.tables import Prepared
from shapshift.trust import another_sample, condemned_classes, sure_signs
from shapshift.valuation import Valuation

BARS = 40
WIDTH, HEIGHT = 240, 48
SHOWN_LEVELS = 12
SHOWN_ROWS = 10
SHOWN_COLUMNS = 10
SHOWN_EXPLANATIONS = 5
TONES = {"reliable": "good", "stable": "good", "usable": "fair", "shifts": "fair", "unreliable": "bad"}
TONES |= {"unstable": "bad", "undefined": "grey"}


class Line(NamedTuple):
    """One sentence."""

    text: str
    tone: str = ""
    bold: bool = False
    kind: str = "line"


class Facts(NamedTuple):
    """Names with their contents, one pair per line."""

    pairs: Sequence[tuple[str, str]]
    kind: str = "facts"


class Table(NamedTuple):
    """A table. A cell is a text, or a text and its tone; columns of texts are aligned left."""

    head: Sequence[str]
    rows: Sequence[Sequence[str | tuple[str, str]]]
    texts: Sequence[bool]
    more: str = ""
    kind: str = "table"


class Bars(NamedTuple):
    """A histogram: x, y, width and height of each bar, and its tone."""

    said: str
    bars: Sequence[tuple[str, str, str, str, str]]
    kind: str = "bars"


class Curve(NamedTuple):
    """A line through dots, from 1 at the top to 0 at the bottom."""

    said: str
    dots: Sequence[tuple[str, str]]
    kind: str = "curve"


Blocks = list[Line | Facts | Table | Bars | Curve]


def show(result: Any) -> str:
    """Show a result of this package.

    Parameters
    ----------
    result : object
        Of a class that has a function in this module.

    Returns
    -------
    str
        HTML without scripts, readable on white and on black; every text is escaped.
    """
    return fill_template("notebook.html.j2", blocks=blocks(result), width=WIDTH, height=HEIGHT)


@singledispatch
def blocks(result: Any) -> Blocks:
    """Return the content to show for a result."""
    raise InputError(f"There is nothing to show of {type(result).__name__}.")


def _title(text: str) -> Line:
    return Line(text, bold=True)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _frame(found: Any, frame: Callable[[str], Any] | None = None, where: str = "to_frame()") -> Table:
    """Show the first rows and columns of a result's table."""
    table = (frame or found.to_frame)("pyarrow")
    names = table.column_names[:SHOWN_COLUMNS]
    part = table.slice(0, SHOWN_ROWS)
    columns = [part[name].to_pylist() for name in names]
    texts = [any(isinstance(entry, str | bool) for entry in column) for column in columns]
    hidden = [_count(table.num_rows - part.num_rows, "row")] if table.num_rows > part.num_rows else []
    hidden += [_count(table.num_columns - len(names), "column")] if table.num_columns > len(names) else []
    more = f"and {' and '.join(hidden)} more, see {where}" if hidden else ""
    return Table(names, [[cell(entry) for entry in row] for row in zip(*columns, strict=True)], texts, more)


@blocks.register
def _(found: Valuation) -> Blocks:
    # Imported here, because plots may be imported only when something is drawn.
    from shapshift.plots.results import count_values, histogram_edges

    known, facts = found.parameters, value_facts(found)
    method = ", ".join(f"{name}={known[name]}" for name in ("semivalue", "utility", "n_neighbors") if name in known)
    n, positive, negative = facts["n_train"], facts["positive"], facts["negative"]
    pairs = [
        ("training rows", f"{n:,}"),
        ("validation points", f"{facts['n_val']:,} ({facts['boundary_fraction']:.0%} boundary points)"),
        ("another sample", another_sample(facts["sampling"])),
        ("sign", sure_signs(facts["sampling"])),
        ("positive, negative", f"{positive:,} ({positive / n:.0%}), {negative:,} ({negative / n:.0%})"),
        ("mean, std", f"{facts['mean']:.3g}, {facts['std']:.3g}"),
        ("lowest, median, highest", ", ".join(f"{facts[name]:.3g}" for name in ("lowest", "median", "highest"))),
        *_ends(found),
    ]
    if facts["error_bound"] is not None:
        worst = f"{facts['error_bound']:.3g}"
        pairs.append(("largest error", "not bounded" if worst in ("inf", "nan") else f"at most {worst}"))
    if "correction" in known:
        pairs.append(("corrected by", known["correction"].get("corrector", "yes")))
    shown: Blocks = [_title(f"{known.get('method', 'Valuation')} values{f' ({method})' if method else ''}")]
    shown.append(Facts([pair for pair in pairs if pair[1]]))
    classes = facts["classes"]
    if classes and classes["all"] > 1:
        rows = [
            (
                str(one["label"]),
                f"{one['rows']:,}",
                (f"{one['share_negative']:.0%}", "bad" if one["label"] in classes["condemned"] else ""),
                f"{one['mean']:.3g}",
                "" if one["reliability"] is None else f"{one['reliability']:.2f}",
            )
            for one in classes["listed"]
        ]
        more = f"the worst of {classes['all']:,} classes, see by_class()" if len(rows) < classes["all"] else ""
        names = ("class", "rows", "negative", "mean", "reliability")
        shown.append(Table(names, rows, (True, *[False] * 4), more))
    if condemned := condemned_classes(classes):
        shown.append(Line(f"{condemned}.", "bad", bold=True))
    edges = histogram_edges(found.values, BARS)
    counts = count_values(found.values, edges)
    step, heights, helps = WIDTH / counts.size, HEIGHT * counts / counts.max(), edges[:-1] + edges[1:] > 0
    bars = [
        (f"{step * i:.1f}", f"{HEIGHT - high:.1f}", f"{0.9 * step:.1f}", f"{high:.1f}", "up" if helps[i] else "down")
        for i, high in enumerate(heights.tolist())
        if high
    ]
    return [*shown, Bars(f"Histogram of the values: {positive} positive, {n - positive} not", bars)]


def _ends(found: Valuation) -> list[tuple[str, str]]:
    """Name, id and value with its interval of the highest and the lowest row; nothing without standard errors."""
    if found.standard_error is None:
        return []
    low, high = found.interval()
    order = np.argsort(found.values, kind="stable")
    return [
        (
            f"{name}, 95% interval",
            f"row {found.ids[at]}: {found.values[at]:.3g} ({low[at]:.3g} to {high[at]:.3g})",
        )
        for name, at in (("highest", order[-1]), ("lowest", order[0]))
    ]


@blocks.register
def _(found: Explanation) -> Blocks:
    rows, shown = explanation_facts(found), Blocks()
    for row in rows[:SHOWN_EXPLANATIONS]:
        shown.append(_title(row["sentence"]))
        shown.append(
            Line(
                f"Value {figure(row['value'])}: {row['gain']:+.3g} from {row['positive']:,} and {row['loss']:+.3g} "
                f"from {row['negative']:,} of {found.n_val:,} validation points."
            )
        )
        points = [
            (
                cell(point["id"]),
                cell(point["label"]),
                (figure(point["value"]), "up" if point["value"] > 0 else "down"),
                figure(point["distance"]),
                figure(point["rank"]),
            )
            for point in row["points"]
        ]
        names = ("validation point", "label", "value there", "distance", "rank")
        shown.append(Table(names, points, (True, True, False, False, False)))
        near = [(cell(one["id"]), cell(one["label"]), figure(one["distance"])) for one in row["neighbors"]]
        if near:
            shown.append(Table(("nearest training row", "label", "distance"), near, (True, True, False)))
    more = len(rows) - SHOWN_EXPLANATIONS
    return [*shown, Line(f"and {_count(more, 'row')} more, see summary() and to_frame()")] if more > 0 else shown


@blocks.register
def _(found: ShiftAudit) -> Blocks:
    facts, order = audit_facts(found), np.argsort(found.positions, kind="stable")
    levels, clean = [facts["levels"][at] for at in order], facts["clean"]
    forms = {"spearman": "{:.2f}", "top_overlap": "{:.0%}", "sign_changes": "{:.0%}", "std": "{:.3g}"}
    forms |= {"positive_count": "{:,.0f}"}
    agreement, sample = found.sampling["reliability_spearman"], found.sampling_verdict
    rows: list[Sequence[str | tuple[str, str]]] = [
        ("clean", "", "", "", "", f"{clean['std']:.3g}", f"{clean['positive_count']:,.0f}"),
        ("another sample", (sample, TONES[sample]), "" if agreement is None else f"{agreement:.2f}", "", "", "", ""),
    ]
    rows += [
        (
            str(level["level"]),
            (level["verdict"], TONES[level["verdict"]]),
            *(form.format(level[name]) for name, form in forms.items()),
        )
        for level in levels[:SHOWN_LEVELS]
    ]
    more = len(levels) - SHOWN_LEVELS
    shown: Blocks = [
        _title(f"{found.n_train:,} values, {_count(found.repeats, 'run')} per level: {found.finding}"),
        Table(
            (found.axis, "verdict", "Spearman", "top kept", "sign flips", "std", "positive"),
            rows,
            (True, True, *[False] * 5),
            f"and {_count(more, 'level')} more, see to_frame()" if more > 0 else "",
        ),
    ]
    rho = np.array([level["spearman"] for level in levels])
    if found.ordered and np.isfinite(rho).all() and rho.size > 1:
        x, y = np.linspace(4, WIDTH - 4, rho.size), 4 + (HEIGHT - 8) * (1 - np.clip(rho, 0, 1))
        said = f"Spearman correlation with the clean values, from {rho[0]:.2f} to {rho[-1]:.2f}"
        shown.append(Curve(said, [(f"{a:.1f}", f"{b:.1f}") for a, b in zip(x, y, strict=True)]))
    return shown


@blocks.register
def _(found: Suspects) -> Blocks:
    flagged = int(found.flagged.sum())
    rows = found.ranking()[: min(flagged, SHOWN_ROWS)].tolist()
    first, *rest = found.findings()
    shown: Blocks = [_title(first), *map(Line, rest)]
    if rows:
        texts = [[str(column[i]) for column in (found.ids, found.label, found.suggested)] for i in rows]
        entries = [(*text, f"{found.probability[i]:.2f}", found.reason[i]) for text, i in zip(texts, rows, strict=True)]
        more = f"and {flagged - len(rows):,} more, see flagged_frame()" if flagged > len(rows) else ""
        names = ("id", "label", "suggested", "probability", "reason")
        shown.append(Table(names, entries, (True, True, True, False, True), more))
    if classes := found.class_rows()[:SHOWN_LEVELS]:
        counts = [(str(c["label"]), f"{c['rows']:,}", f"{c['flagged']:,}", f"{c['share']:.1%}") for c in classes]
        shown.append(Table(("class", "rows", "flagged", "share"), counts, (True, False, False, False)))
    return [*shown, *_notes(found.notes)]


def _notes(notes: Sequence[str]) -> list[Line]:
    return [Line(f"Note: {note}", "fair") for note in notes]


@blocks.register
def _(found: Duplicates) -> Blocks:
    facts = found.summary()
    pairs = [
        ("exact, near", f"{facts['exact']:,}, {facts['near']:,} rows"),
        ("across owners", f"{facts['across_owners']:,} groups"),
        ("across splits", f"{facts['across_splits']:,} groups"),
        ("contradicting labels", f"{facts['contradicting']:,} training rows"),
        ("radius", f"{facts['radius']:.3g}, joins {facts['honest']:.2g} rows by chance"),
    ]
    return [_title(f"{_count(facts['groups'], 'group')} of duplicates, {facts['rows']:,} rows"), Facts(pairs)]


@blocks.register
def _(found: Clusters) -> Blocks:
    votes, n = found.representatives.size, found.first.size
    return [_title(f"{votes:,} of {_count(n, 'training row')} vote"), *map(Line, found.findings())]


@blocks.register
def _(found: Allocation) -> Blocks:
    paid = found.show(np.maximum(found.cents, 0).sum())
    rest = found.unallocated_cents - found.collected_cents
    kept = {"kept back": found.reserve_cents, "collected": found.collected_cents, "not allocated": rest}
    pairs = [("budget", found.show(found.budget_cents))]
    pairs += [(name, found.show(cents)) for name, cents in kept.items() if cents]
    return [
        _title(f"{paid} to {_count(len(found.owners), 'owner')}"),
        Facts(pairs),
        _frame(found),
        *map(Line, found.sentences()),
    ]


@blocks.register
def _(found: PayoutAudit) -> Blocks:
    low, high = (cents / 10**found.digits for cents in found.bounds())
    paid = found.clean / 10**found.digits
    order = np.argsort(low - high, kind="stable")[:SHOWN_ROWS]
    rows = [
        (cell(found.owners[at]), *(f"{part[at]:,.{found.digits}f}" for part in (paid, low, high, high - low)))
        for at in order
    ]
    hidden = len(found.owners) - len(rows)
    more = f"and {_count(hidden, 'owner')} more, see to_frame()" if hidden else ""
    return [
        _title(f"Payouts of {_count(len(found.owners), 'owner')} under {found.condition()}"),
        Table(("owner", "paid", "lowest", "highest", "range"), rows, (True, *[False] * 4), more),
    ]


@blocks.register
def _(found: OwnerValues) -> Blocks:
    known = found.parameters
    pairs = [
        ("sum of the values", f"{found.values.sum():.4g}"),
        ("utility of all owners, of none", f"{found.full:.4g}, {found.empty:.4g}"),
        ("semivalue", str(known.get("semivalue", "shapley"))),
        ("error of computing, at most", "not known" if np.isnan(found.certificate) else f"{found.certificate:.1g}"),
    ]
    return [_title(f"Values of {_count(len(found.owners), 'owner')} as players"), Facts(pairs), _frame(found)]


@blocks.register
def _(found: FederatedValues) -> Blocks:
    n_rounds, n_owners = found.round_values.shape
    title = f"Values of {_count(n_owners, 'owner')} over {_count(n_rounds, 'round')}"
    return [_title(title), Facts([("gained in all rounds", f"{found.gains.sum():.4g}")]), _frame(found)]


@blocks.register
def _(found: InfluenceAudit) -> Blocks:
    said = (
        "An owner is favoured more than chance explains" if found.alarm else "No sign of a manipulated validation set"
    )
    return [_title(said), Line(found.finding, "bad" if found.alarm else ""), _frame(found)]


@blocks.register
def _(found: PointInfluence) -> Blocks:
    order = np.argsort(-np.nan_to_num(found.change), kind="stable")[:SHOWN_ROWS]
    rows = [[f"{p}", cell(found.change[p]), cell(found.agreement[p]), cell(found.flips[p])] for p in order.tolist()]
    left = found.change.size - len(rows)
    head = ["point", "change", "agreement", "sign changes"]
    more = f"and {_count(left, 'point')} more with less influence" if left else ""
    title = f"What each of {_count(found.change.size, 'validation point')} changes in the values"
    return [_title(title), Table(head, rows, [False] * 4, more)]


@blocks.register
def _(found: ValidationAttack) -> Blocks:
    title = f"What {visible(str(found.owner))} gains by changing at most {_count(found.allowed, 'validation point')}"
    money = f"{{:,.{found.digits}f}} {found.currency}"
    pairs = [
        ("gain of the attack found", money.format(found.gain)),
        ("most that is possible", money.format(found.bound)),
    ]
    return [_title(title), Facts(pairs), _frame(found)]


@blocks.register
def _(found: StressTest) -> Blocks:
    summary = found.summary()
    rows = [
        (
            one["attack"],
            f"{one['attackers']:,}",
            *(
                (f"{one[name]:+.1f}%", "bad" if one[name] > 0 and name == "gain_percent" else "")
                if one["attackers"] and np.isfinite(one[name])
                else ""
                for name in ("gain_percent", "low_percent", "high_percent", "worst_percent")
            ),
        )
        for one in summary["attacks"]
    ]
    head = ("trick", "sellers", "mean gain", "low", "high", "largest gain")
    return [
        _title(
            f"What tricks gain, in % of an average seller's pay: {len(found.attackers)} of {found.n_sellers} sellers"
        ),
        Table(head, rows, (True, *[False] * 5)),
        *map(Line, found.findings()),
    ]


@blocks.register
def _(found: Interactions) -> Blocks:
    title = f"Interactions of {found.ids.size:,} training rows on {found.parameters['n_val']:,} validation points"
    pairs = [("kept of each row", f"the {found.partners.shape[1]:,} strongest"), ("sum of all", f"{found.total:.4g}")]
    return [_title(title), Facts(pairs), _frame(found)]


@blocks.register
def _(found: LabelSuggestions) -> Blocks:
    title = f"{_count(found.ids.size, 'row')} to label next, of {found.pool_predicted.size:,}"
    pairs = [
        ("mean predicted value", f"{found.predicted.mean():.3g}, in the pool {found.pool_predicted.mean():.3g}"),
        ("rank correlation of predictions", f"{found.rank_correlation:.2f} (leave-one-out)"),
    ]
    return [_title(title), Facts(pairs), _frame(found)]


@blocks.register
def _(found: DesignResult) -> Blocks:
    title = f"{_count(found.indices.size, 'validation point')} chosen of {found.parameters['n_pool']:,}"
    return [_title(title), Line(f"The selection {found.verdict}."), _frame(found)]


@blocks.register
def _(found: ProfileComparison) -> Blocks:
    tone = "good" if found.representative else "fair"
    title = "Entropy of the neighbours' labels: validation points and training rows"
    return [_title(title), Line(found.verdict, tone), _frame(found)]


@blocks.register
def _(found: EntropyProfile) -> Blocks:
    rows = [(figure(level), f"{share:.1%}") for level, share in zip(found.levels, found.shares, strict=True)]
    title = f"{_count(found.n_points, 'point')}, {found.boundary_fraction:.1%} of them boundary points"
    return [_title(title), Table(("entropy", "share of points"), rows[:SHOWN_LEVELS], (False, False))]


@blocks.register
def _(found: ProxyValuation) -> Blocks:
    pairs = [
        (
            f"rank correlation on {_count(found.rows.size, 'row')}",
            f"{found.spearman:.2f} ({found.confidence:.0%} interval {found.low:.2f} to {found.high:.2f})",
        ),
        ("reliability of the comparison", f"{found.reliability:.2f}"),
    ]
    return [_title("Values by proxy, compared with the model itself"), Facts(pairs), *blocks(found.valuation)]


@blocks.register
def _(found: ValuationEvaluation) -> Blocks:
    return [_title(f"Values by {found.method}, in use"), _frame(found)]


@blocks.register
def _(found: ValuationComparison) -> Blocks:
    columns = found.to_frame("pyarrow").to_pydict()
    values = {
        (use, statistic, method): value
        for method, use, statistic, value in zip(
            *(columns[c] for c in ("method", "use", "statistic", "value")), strict=True
        )
    }
    methods = list(dict.fromkeys(columns["method"]))
    lines = list(dict.fromkeys((use, statistic) for use, statistic, _ in values))
    rows = [
        (*line, *(figure(values[*line, method]) if (*line, method) in values else "" for method in methods))
        for line in lines
    ]
    head = ("use", "statistic", *map(cell, methods))
    return [
        _title(f"{_count(len(found.evaluations), 'valuation')} in use"),
        Table(head, rows, (True, True, *[False] * len(methods))),
    ]


@blocks.register
def _(found: CorrectionEvaluation) -> Blocks:
    return [
        _title(f"{' and '.join(w for w in found.values if w != 'clean')} values against the clean ones".capitalize()),
        _frame(found),
    ]


@blocks.register(CorrectionReport)
@blocks.register(PosteriorReport)
@blocks.register(NoiseEstimate)
def _(found: Any) -> Blocks:
    first, *rest = str(found).splitlines()
    return [_title(first), *(Line(line.strip()) for line in rest)]


@blocks.register
def _(found: Rehearsal) -> Blocks:
    rows = [
        (name, figure(found.weights[name]) if name in found.weights else "", figure(rho), figure(found.rmse[name]))
        for name, rho in found.spearman.items()
    ]
    title = f"Rehearsal with {_count(found.points, 'row')} held back in each of {_count(found.splits, 'split')}"
    head = ("estimate", "weight", "Spearman with clean", "error (clean std = 1)")
    return [_title(title), Table(head, rows, (True, False, False, False))]


@blocks.register
def _(found: CleaningEffect) -> Blocks:
    title = f"What cleaning changes, on {found.held_out} ({_count(found.repeats, 'repeat')})"
    return [_title(title), _frame(found), *_notes(found.notes)]


@blocks.register
def _(found: Revalued) -> Blocks:
    how = "exact" if found.exact else "with the bound 'error_bound'"
    return [_title(f"Values of the {_count(found.rows.size, 'row')} left ({how})"), *blocks(found.valuation)]


@blocks.register
def _(found: Decisions) -> Blocks:
    last = found.effective()
    counts = {action: last.actions.count(action) for action in dict.fromkeys(last.actions)}
    said = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    return [_title(f"Decisions about {_count(len(last.ids), 'row')}{f': {said}' if said else ''}"), _frame(last)]


@blocks.register(CaseOne)
@blocks.register(CaseTwo)
def _(found: CaseOne | CaseTwo) -> Blocks:
    one = isinstance(found, CaseOne)
    n, thing = len(found.points), "validation point" if one else "pair"
    which = found.kind if isinstance(found, CaseOne) else found.scenario
    return [_title(f"Values as noise on {_count(n, thing)} grows ({which})"), _frame(found)]


@blocks.register
def _(found: NoiseDemo) -> Blocks:
    title = f"Validation point {found.point} with noise {found.noise:g}"
    said = f"{found.shared.size} of its {found.before.size} nearest rows stay the same."
    return [_title(title), Line(said), _frame(found)]


@blocks.register
def _(found: Dataset) -> Blocks:
    verified = {True: "as expected", False: "not as expected", None: "nothing to compare with"}[found.verified]
    pairs = [
        ("training rows", f"{len(found.y_train):,}"),
        ("validation points", f"{len(found.y_val):,}"),
        ("features", f"{len(found.feature_names):,}"),
        ("protocol", found.protocol),
        ("source", found.source),
        ("checksum", verified),
    ]
    return [_title(found.name), Line(found.description), Facts(pairs)]


@blocks.register
def _(found: Prepared) -> Blocks:
    pairs = [
        ("training rows", f"{len(found.y_train):,}"),
        ("validation points", f"{len(found.y_val):,}"),
        ("features", f"{len(found.feature_names):,}"),
        ("label", cell(found.spec["label"])),
    ]
    return [_title("Prepared tables"), Facts(pairs), *_notes(found.notes)]


@blocks.register
def _(found: ValuationStore) -> Blocks:
    pairs = [
        ("training rows", f"{found.ids.size:,}"),
        ("validation points", f"{found.n_val:,}"),
        ("groups of points", f"{len(found.group_names):,}"),
    ]
    return [_title("Values that are kept up to date"), Facts(pairs)]


@blocks.register
def _(found: Policy) -> Blocks:
    return [_title("Policy"), *map(Line, [*found.sentences(), *found.invites()])]


@blocks.register
def _(found: Rule) -> Blocks:
    return [_title("Rule of payment"), *map(Line, [*found.sentences(), *found.invites()])]


@blocks.register
def _(found: Privacy) -> Blocks:
    rounded = "not rounded" if found.step is None else f"rounded to multiples of {found.step}"
    noise = "none" if found.epsilon is None else f"{found.epsilon:g}-differentially private for the validation points"
    return [_title("Privacy of the validation set"), Facts([("payments", rounded), ("noise", noise)])]


@blocks.register
def _(found: Market) -> Blocks:
    events = list(found.ledger.events())
    opened, closed = (sum(event.kind == kind for event in events) for kind in ("open", "close"))
    about = [(name, text) for name, text in found.about.items() if text]
    return [_title(f"Market with {_count(opened, 'round')}, {closed:,} closed"), Facts(about)]


@blocks.register
def _(found: Terms) -> Blocks:
    pairs = [("budget", f"{found.budget} {found.currency}"), ("label", found.form.label), ("period", found.period)]
    return [_title("Terms of a round"), Facts([pair for pair in pairs if pair[1]]), *map(Line, found.rule.sentences())]


@blocks.register
def _(found: Closed) -> Blocks:
    terms = found.terms
    rows = [
        (cell(seller), f"{found.tables[seller].rows:,}" if seller in found.tables else "", terms.show(cents))
        for seller, cents in found.payments.items()
    ]
    hidden = len(rows) - SHOWN_ROWS
    more = f"and {_count(hidden, 'seller')} more, see payments" if hidden > 0 else ""
    pairs = [
        ("kept back", terms.show(found.reserve)),
        ("not allocated", terms.show(found.unallocated)),
        ("closed", found.time),
        ("digest", found.digest),
    ]
    return [
        _title(f"Round {found.round}: {terms.show(sum(found.payments.values()))} to {_count(len(rows), 'seller')}"),
        Table(("seller", "rows", "payment"), rows[:SHOWN_ROWS], (True, False, False), more),
        Facts(pairs),
    ]


@blocks.register
def _(found: Verification) -> Blocks:
    counts = [(name, f"{getattr(found, name):,}") for name in ("events", "rounds", "closed", "payments", "blobs")]
    said = Line("Nothing is wrong.", "good") if found.fault is None else Line(found.fault, "bad")
    return [_title("Check of a ledger"), said, Facts([*counts, ("head", found.head)])]


@blocks.register
def _(found: Verified) -> Blocks:
    faults = [Line(fault, "bad") for fault in found.faults if fault != found.chain.fault]
    return [*blocks(found.chain), Facts([("payments computed again", f"{found.recomputed:,}")]), *faults]


@blocks.register
def _(found: Event) -> Blocks:
    pairs = [("round", found.round), ("seller", found.seller), ("time", found.time), ("digest", found.digest)]
    return [_title(f"Event {found.sequence}: {found.kind}"), Facts([pair for pair in pairs if pair[1]])]
