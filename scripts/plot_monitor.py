#!/usr/bin/env python3
"""Plots the output of pid_monitor.py: CPU over time and memory over time.

    scripts/plot_monitor.py CSV ... -o FILE.svg

Both charts are in one picture, SVG or PNG by the file's name; with --chart only
one. There is a line for each description, over the seconds since its own first
sample, so that scenarios that ran one after the other lie side by side. Processes
of the same description are added up.

Needs matplotlib: apt-get install python3-matplotlib, or pip install matplotlib.
"""

import argparse
import csv
import sys
from dataclasses import dataclass, field
from datetime import datetime

CHARTS = {
    "cpu": ("CPU", "CPU (% of one core)"),
    "memory": ("Resident memory", "resident memory (MiB)"),
}
# Distinct in print and for the colour-blind (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", ":", "-.")


@dataclass
class Line:
    """One scenario."""

    seconds: list = field(default_factory=list)
    cpu: list = field(default_factory=list)
    memory: list = field(default_factory=list)


def lines_of(rows):
    """{description: Line}, in the order in which they come.

    >>> samples = ((1, "a", "1.5"), (1, "a", "2"), (3, "a", "4"), (9, "b", "1"))
    >>> rows = [dict(timestamp=f"2026-01-01T00:00:0{second}+00:00", description=description,
    ...     cpu_percent=cpu, memory_mb="2") for second, description, cpu in samples]
    >>> lines_of(rows)["a"]
    Line(seconds=[0.0, 2.0], cpu=[3.5, 4.0], memory=[4.0, 2.0])
    >>> lines_of(rows)["b"].seconds
    [0.0]
    """
    samples = {}
    for row in rows:
        of_description = samples.setdefault(row["description"], {})
        sums = of_description.setdefault(datetime.fromisoformat(row["timestamp"]), [0.0, 0.0])
        sums[0] += float(row["cpu_percent"])
        sums[1] += float(row["memory_mb"])
    lines = {}
    for description, by_time in samples.items():
        times = sorted(by_time)
        lines[description] = Line(
            [(time - times[0]).total_seconds() for time in times],
            [by_time[time][0] for time in times],
            [by_time[time][1] for time in times],
        )
    return lines


def read(paths):
    rows = []
    for path in paths:
        with open(path, newline="") as file:
            rows += csv.DictReader(file)
    return lines_of(rows)


def draw(plt, lines, charts, title, output):
    """One chart below the other, over the same seconds, with one legend."""
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gpuprobe", "font.size": 10})
    figure, all_axes = plt.subplots(
        len(charts), 1, sharex=True, squeeze=False, figsize=(9, 0.8 + 3.1 * len(charts))
    )
    for axes, chart in zip(all_axes[:, 0], charts):
        name, label = CHARTS[chart]
        for index, (description, line) in enumerate(lines.items()):
            axes.plot(
                line.seconds,
                getattr(line, chart),
                label=description,
                color=COLOURS[index % len(COLOURS)],
                linestyle=DASHES[index // len(COLOURS) % len(DASHES)],
                linewidth=1.6,
            )
        axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[-1, 0].set_xlabel("time (s)")
    all_axes[-1, 0].set_xlim(left=0)
    figure.suptitle(title)
    handles, labels = all_axes[0, 0].get_legend_handles_labels()
    # Below the charts: there it covers nothing, however many lines there are.
    figure.tight_layout()
    figure.legend(
        handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=2, frameon=False
    )
    metadata = {"Date": None} if output.endswith(".svg") else {}
    figure.savefig(output, bbox_inches="tight", dpi=150, metadata=metadata, facecolor="white")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("csv", nargs="+", metavar="CSV", help="of pid_monitor.py")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=".svg or .png")
    parser.add_argument("--chart", choices=("both", *CHARTS), default="both", help="(both)")
    parser.add_argument("--title", default="What the processes take", help="above the charts")
    options = parser.parse_args()
    if not options.output.endswith((".svg", ".png")):
        parser.error(f"{options.output}: expected a name that ends in .svg or .png")
    lines = read(options.csv)
    if not lines:
        print("plot_monitor.py: there are no samples in these files", file=sys.stderr)
        return 1
    try:
        import matplotlib
    except ImportError:
        print(
            "plot_monitor.py: needs matplotlib: apt-get install python3-matplotlib,"
            " or pip install matplotlib",
            file=sys.stderr,
        )
        return 1
    matplotlib.use("Agg")  # no display is needed
    import matplotlib.pyplot as plt

    charts = list(CHARTS) if options.chart == "both" else [options.chart]
    draw(plt, lines, charts, options.title, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
