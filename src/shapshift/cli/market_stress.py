"""``shapshift market stress``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text

from shapshift.cli._commands import command
from shapshift.cli._data import load, make_model
from shapshift.cli._options import Columns, Files, Method, Output, Payment, option
from shapshift.cli._run import Run
from shapshift.cli._terminal import Terminal
from shapshift.cli.price import check_owners, check_payment, payment_rule

if TYPE_CHECKING:
    from shapshift.market.stress import StressTest


@dataclass(frozen=True)
class Tricks:
    """Tricks to play, and who plays them."""

    panel: ClassVar[str] = "Tricks"
    attack: list[str] | None = option(
        None,
        'Play these alone: copy, copy x4, "copy x10, tiny noise", steal, near-copy, steal with noise, random rows, '
        "mixup, split, merge, hide bad rows. Repeat the option.",
        metavar="NAME",
    )
    attackers: int = option(
        4, "Number of sellers, drawn at random, who play each trick, one at a time.", metavar="N", min=1
    )
    attacker: list[str] | None = option(
        None, "Let this seller play instead. Repeat the option for more.", metavar="SELLER"
    )
    repeats: int = option(3, "Number of repeats of tricks that use random draws.", metavar="N", min=1)


@command(
    "market stress",
    *(Files, Columns, Method, Payment, Tricks, Output),
    examples=[
        "shapshift market stress train.csv val.csv --label y --owner seller --budget 10000",
        "shapshift market stress train.csv val.csv --label y --owner seller --budget 10000 --pay-by rows",
        "shapshift market stress train.csv val.csv --label y --owner seller --budget 500 --attack copy --attacker ann",
    ],
)
def market_stress(run: Run) -> None:
    """Play tricks of sellers on these rows, and measure what each would gain under the payment rule.

    Sellers copy rows, of their own or of others, exactly or with noise, add random rows or averages, split into two
    names, merge, or hide bad rows under a second name. Each trick is played by some of the sellers, one at a time,
    on the encoded and scaled rows; all else stays the same. The gain is shown in money and in % of the average seller's
    payment, with a 95% interval over sellers.

    Writes [bold]stress.csv[/] (one line per game), [bold]stress.npz[/] (for StressTest.load) and
    [bold]manifest.json[/].
    """
    from shapshift.checks.inputs import check_choice
    from shapshift.market.attacks import ATTACKS
    from shapshift.market.stress import stress_market

    check_payment(run)
    for name in run[Tricks].attack or ():
        check_choice("stress_market", "attacks", name, tuple(ATTACKS))
    tricks, payment, rule = run[Tricks], run[Payment], payment_rule(run)
    run.will_write("stress.csv", "stress.npz")
    data = load(run)
    check_owners(data)
    arrays = data.arrays
    named = {str(owner): owner for owner in ([] if arrays.owners is None else arrays.owners.tolist())}
    found = stress_market(
        make_model(run),
        arrays.X_train,
        arrays.y_train,
        *data.points,
        arrays.owners,
        payment.budget,
        rule=rule,
        order=data.order,
        attacks=tricks.attack or tuple(ATTACKS),
        attackers=[named.get(name, name) for name in tricks.attacker or ()] or tricks.attackers,
        n_repeats=tricks.repeats,
        random_state=run.seed,
        currency=payment.currency,
        progress=run.terminal.progress,
    )
    run.write_table("stress.csv", found.to_frame("pyarrow"))
    found.save(run.path("stress.npz"))
    run.parameters["rule"] = rule.to_dict()
    for sentence in rule.sentences(payment.currency, found.digits):
        run.terminal.line(sentence)
    run.result = {"rule": rule.to_dict(), **show_stress(run.terminal, found)}


def show_stress(terminal: Terminal, found: "StressTest") -> dict[str, Any]:
    """Print the gains of the tricks as a table and in sentences; return the facts."""
    facts = found.summary()

    def interval(one: dict[str, Any], kind: str, form: str) -> str:
        low, high = one[f"low{kind}"], one[f"high{kind}"]
        return f" [{low:{form}}, {high:{form}}]" if low == low else ""  # not a number for a single attacker

    rows, styles = [], []
    for one in facts["attacks"]:
        row = {"trick": one["attack"], "a seller": Text(one["words"])}
        gains = ["nothing" if one["attackers"] else "does not apply"]
        if one["gain"] or one["worst"] > 0:
            form = f"+,.{found.digits}f"
            gains = [f"{one['gain']:{form}}{interval(one, '', form)}", f"{one['worst']:{form}}"]
            if facts["average_pay"] > 0:
                gains += [f"{one['gain_percent']:+.0f}%{interval(one, '_percent', '+.0f')}"]
                gains += [f"{one['worst_percent']:+.0f}%"]
        unit = facts["currency"] or "money"
        headings = (f">gain in {unit} (95%)", ">at most", ">% of average pay (95%)", ">at most, %")
        rows.append(row | dict(zip(headings, [*gains, "", "", ""], strict=False)))
        styles.append("red" if one["low"] > 0 else "yellow" if one["gain"] > 0 else "")
    average = f"{facts['average_pay']:,.{found.digits}f} {facts['currency']}".rstrip()
    terminal.table("What tricks gain", rows, styles)
    terminal.line(
        f"{facts['attackers']:,} of {facts['sellers']:,} sellers played each trick, one at a time; an average seller "
        f"is paid {average}. Intervals are over sellers, whose repeats are averaged first."
    )
    findings = found.findings()
    for sentence in findings:
        terminal.line(sentence)
    return facts | {"findings": findings}
