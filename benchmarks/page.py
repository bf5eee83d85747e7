"""Write the tables of docs/benchmarks.md and docs/engineering_notes.md, and the charts, from docs/benchmarks."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).resolve().parent.parent / "docs"
FIGURES = DOCS / "benchmarks"


def read(name: str) -> dict[str, Any]:
    return json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def own_table(bench: dict[str, Any]) -> str:
    rows = []
    for row in bench["rows"]:
        rate = f"{row['rate'] / 1e6:.0f} M" if row["pairs"] else ""
        met = "yes" if row["met"] else "**no**"
        what = row["what"] + (f" ({row['note']})" if row["note"] else "")
        about = row.get("about", bench["about"])
        rows.append(
            [
                what,
                rate,
                f"{row['ratio']:.2f} {row['against']}",
                row["bar"],
                met if row["bar"] else "",
                f"{about['processor']}, {about['vector_bits']} bits, {about['date']}",
            ]
        )
    return table(["what", "pairs/s", "measured", "bar", "met", "processor and vectors"], rows)


def peer_table(peers: dict[str, Any]) -> str:
    rows = []
    for peer in peers["peers"]:
        rows += [
            [
                f"{peer['name']} {peer['version']}",
                f"{run['n_train']:,} x {run['n_val']:,}, d={run.get('features', 32)}",
                f"{run['rate'] / 1e6:.2f} M",
                f"{run['our_rate'] / 1e6:.0f} M",
                f"{run['ratio']:.0f}",
                f"{run['difference'] / run['std']:.0e} std",
                peer["note"],
            ]
            for run in peer["runs"]
        ]
        if peer["error"]:
            rows.append([f"{peer['name']} {peer['version']}", "", "", "", "", "", peer["error"]])
    return table(["package", "N x m and features", "pairs/s", "shapshift", "ratio", "largest difference", "note"], rows)


# Target rates of exact and certified values in billions of pairs per second, by rows and features.
GPU_BARS = {
    (100_000, 32): (None, 25),
    (1_000_000, 384): (11, 40),
    (1_000_000, 768): (9, 25),
    (10_000_000, 32): (8, None),
}


def gpu_table(gpu: dict[str, Any]) -> str:
    rows = []
    for run in gpu["table"]:
        bars = GPU_BARS.get((run["rows"], run["features"]), (None, None))
        row = [f"{run['rows']:,}", f"{run['features']:,}", f"{run['product'] / 1e9:.0f} G"]
        for name, bar in zip(("exact", "certified"), bars, strict=True):
            rate = run[name]["pairs_per_second"] / 1e9
            row.append(f"{rate:.1f} G" + ("" if name == "exact" or run[name]["coarse"] else " (exact)"))
            row.append("" if bar is None else f"{bar} G: " + ("met" if rate >= bar else "**missed**"))
        rows.append(row)
    return table(["rows", "features", "float64 product", "exact", "bar", "certified", "bar"], rows)


def count_table(counts: dict[str, dict[str, float]]) -> str:
    header = ["per pair", *next(iter(counts.values()))]
    rows = [[name, *(f"{number:.3g}" for number in found.values())] for name, found in counts.items()]
    return table(header, rows)


def chart(bench: dict[str, Any], peers: dict[str, Any], path: Path) -> None:
    bars = [
        (f"{peer['name']}, N={run['n_train']:,}", run["rate"], "0.65")
        for peer in peers["peers"]
        for run in peer["runs"]
        if run["n_train"] == 10_000 and run.get("features", 32) == 32
    ]
    bars += [
        (f"shapshift {row['what'].split(' m=')[0]}", row["rate"], "C0")
        for row in bench["rows"]
        if row["what"].startswith("exact, N") and " d=" not in row["what"]
    ]
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(bars) + 1.2), layout="constrained")
    names, rates, colors = zip(*bars[::-1], strict=True)
    axes.barh(names, rates, color=colors)
    axes.set_xscale("log")
    axes.set_xlabel("pairs of a training row and a validation point per second, 2 cores")
    for place, rate in enumerate(rates):
        axes.text(rate * 1.1, place, f"{rate / 1e6:.3g} M", va="center", fontsize=9)
    axes.set_xlim(right=max(rates) * 5)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def features_chart(bench: dict[str, Any], path: Path) -> None:
    """Cost of a pair against the number of features, with the matrix product as the floor."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    names = {"exact": ("C0", "o"), "truncated": ("C1", "s"), "float32 product": ("0.5", "_")}
    for name, (color, marker) in names.items():
        rows = [row for row in bench["rows"] if row["what"].startswith(f"{name},") and " d=" in row["what"]]
        features = [int(row["what"].split(" d=")[1].replace(",", "")) for row in rows]
        costs = [1e9 / row["rate"] for row in rows]
        axes.plot(features, costs, color=color, marker=marker, label=name)
        if name == "float32 product":
            axes.fill_between(features, costs, 0, color="0.9", linewidth=0)
    about = bench["rows"][0].get("about", bench["about"])
    axes.set_title(f"N=100,000, one thread, vectors of {about['vector_bits']} bits", fontsize=10)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(features, [f"{d:,}" for d in features])
    axes.set_xlabel("features (float32)")
    axes.set_ylabel("nanoseconds a pair")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    bench, avx2, peers, gpu, counts = (read(name) for name in ("bench", "avx2", "peers", "gpu", "instructions"))
    chart(bench, peers, FIGURES / "rates.png")
    features_chart(bench, FIGURES / "features.png")
    pages = {
        "benchmarks.md": {
            "bench": own_table(bench),
            "avx2": own_table(avx2),
            "peers": peer_table(peers),
            "gpu": gpu_table(gpu),
        },
        "engineering_notes.md": {"instructions": count_table(counts)},
    }
    for page, tables in pages.items():
        text = (DOCS / page).read_text(encoding="utf-8")
        for name, content in tables.items():
            begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
            before, rest = text.split(begin)
            text = before + begin + "\n\n" + content + "\n\n" + end + rest.split(end)[1]
        (DOCS / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
