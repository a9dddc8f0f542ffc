"""Write the dashboard of benchmarks from ``results/`` and, where there is a repository, from its history.

Each benchmark has the date, device and versions it was measured with, its main numbers with their spread, and the
earlier values of the same numbers: every stored version of a file is one measurement.
"""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = {
    "oscillator_features": (
        ("mean accuracy, all sets", "mean|all|OscillatorClassifier|accuracy", "%"),
        ("seconds a set", "mean|all|OscillatorClassifier|seconds", "s"),
    ),
    "oscillator_scan": (
        ("UnICORNN 1000×128×128", "1000x128x128|layer(H, H), ms", "ms"),
        ("nn.LSTM, the same", "1000x128x128|LSTM(H, H), ms", "ms"),
        ("scan over copies", "1000x128x128|scan / copies", "×"),
    ),
    "oscillator_scan_h200": (
        ("UnICORNN 1000×128×128", "1000x128x128|layer(H, H), ms", "ms"),
        ("nn.LSTM, the same", "1000x128x128|LSTM(H, H), ms", "ms"),
        ("scan as a CUDA graph", "1000x128x128|scan, as a CUDA graph, ms", "ms"),
    ),
    "oscillator_memory": (("recompute over store, peak bytes", "recompute_over_store|final state|peak_bytes", "%"),),
    "dense_scan": (
        ("LipschitzRNN 784×32×128", "784x32x128|Lipschitz, ms", "ms"),
        ("nn.LSTM, the same", "784x32x128|LSTM, ms", "ms"),
    ),
    "dense_scan_h200": (
        ("LipschitzRNN 784×128×128", "784x128x128|Lipschitz, ms", "ms"),
        ("cuDNN LSTM, the same", "784x128x128|LSTM, ms", "ms"),
    ),
    "ordinary_tasks": (("mean rank of the stack", "mean_rank|stack", ""), ("of nn.LSTM", "mean_rank|nn.LSTM", "")),
    "forecasting": (("series ahead of all three", "ahead_of_all", ""),),
    "recurrent_ntk": (("pairs × steps a second", "compiled, pair-steps / s", ""), ("seconds", "compiled, s", "s")),
    "ucr_kernels": (("mean accuracy, RNTK", "mean_accuracy|rntk", "%"), ("RBF", "mean_accuracy|rbf", "%")),
    "half_life_h200": (("accuracy with 784 steps promised", "half_lives|784|mean_accuracy", "%"),),
    "memory_bounds": (
        ("bounds broken, oscillators", "oscillators|broken", ""),
        ("proved over worst found", "oscillators|remembers|median", ""),
    ),
    "certificates": (
        ("certified by Lur'e", "certified_share|lure", "%"),
        ("contradicted by simulation", "contradicted|lure", ""),
    ),
    "bounds": (("violations in 2000 models", "violations", ""),),
    "gram_cluster": (("20,000 sequences, two workers", "seconds", "s"),),
    "rkhs_norm": (("exact norm and gradient", "exact|median_seconds", "s"),),
}
"""The numbers that are followed, by benchmark: label, path in the record, unit."""


def write_page(path):
    """Write the dashboard."""
    files = sorted((ROOT / "results").glob("*.json"))
    stored = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    lines = ["# Benchmarks", "", INTRODUCTION, "", *followed(stored), "", "## Every record", "", *every(stored), ""]
    path.write_text("\n".join(lines), encoding="utf-8")


INTRODUCTION = """What is stored in `results/`, as it was measured. `sostenuto bench NAME` measures again, and
`--out results` stores the medians of five runs with their spread where times are measured. Earlier values are those of
earlier versions of the file, oldest first, each with its date. Machines were shared, so small differences between dates
mean little. [Speed](../speed.md) explains the numbers."""


def followed(stored):
    """Write the table of followed numbers."""
    yield from ("| benchmark | number | now | spread | earlier |", "|---|---|---|---|---|")
    for name, numbers in NUMBERS.items():
        if name not in stored:
            continue
        past = history(name)
        for label, place, unit in numbers:
            now = value_at(stored[name]["record"], place)
            if now is None:
                continue
            spread = stored[name]["record"].get("spread", {}).get(place.replace("|", " "))
            between = " to ".join(written(each, unit) for each in spread) if spread else "not stored"
            earlier = distinct([(date, value_at(record, place)) for date, record in past], now)
            before = ", ".join(f"{written(value, unit)} ({date})" for date, value in earlier) or "–"
            yield f"| {name} | {label} | {written(now, unit)} | {between} | {before} |"


def every(stored):
    """Write the table of all records: what they compare, when, on what."""
    yield from ("| record | compares | date | device | versions | measured |", "|---|---|---|---|---|---|")
    for name, page in stored.items():
        device = page["device"]
        place = device["gpu"] or f"{device['cores']} cores, {device['threads']} thread(s), {device['processor']}"
        title = page["title"].replace("|", "\\|")
        count = max(len(history(name)), 1)
        versions = ", ".join(
            f"{package} {page['versions'][package]}" for package in ("python", "torch", "numpy", "numba")
        )
        times = "once" if count == 1 else f"{count} times"
        yield f"| {name} | {title} | {page['date'][:10]} | {place} | {versions} | {times} |"


def history(name):
    """Give date and record of every stored version of a result, oldest first; nothing where there is no repository."""
    path = f"results/{name}.json"
    found = []
    for commit in git("log", "--follow", "--format=%h", "--", path).split():
        try:
            page = json.loads(git("show", f"{commit}:{path}"))
        except ValueError:
            continue
        found.append((page["date"][:10], page["record"]))
    return found[::-1]


def git(*arguments):
    """Ask git, or give nothing where it has no answer."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def value_at(record, place):
    """Find a number by its path, None where an earlier record lacks it."""
    for key in place.split("|"):
        record = record.get(key) if isinstance(record, dict) else None
    return record if isinstance(record, int | float) else None


def distinct(values, now):
    """Leave out what is missing or equal to the next value, and keep the last six."""
    kept = [pair for pair in values if pair[1] is not None]
    after = [value for _, value in kept[1:]] + [now]
    return [pair for pair, later in zip(kept, after, strict=False) if pair[1] != later][-6:]


def written(value, unit):
    """Write a number with its unit."""
    if unit == "%":
        return f"{100 * value:.1f} %"
    text = f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {unit}".strip()


if __name__ == "__main__":
    write_page(Path(__file__).parent / "results" / "benchmarks.md")
