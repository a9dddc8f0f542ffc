"""Write the README's table from ``results/``: ``python docs/evidence.py``; a test sees that it is up to date.

`claims` are figures that pages say in their own words; the test looks for them there.
"""

import json
from pathlib import Path

from sostenuto.experiments.tasks.ucr_wide_choice import family_points

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
BEGIN, END = "<!-- evidence: written by python docs/evidence.py -->", "<!-- end of evidence -->"


def record(name):
    """Read the record of a stored benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["record"]


def experiment(name):
    """Read a stored experiment's numbers by name."""
    return json.loads((RESULTS / "experiments" / f"{name}.json").read_text(encoding="utf-8"))


def rows():
    """Give the rows of the table: what was measured, ours, the others, and the file; losses stand beside wins."""
    yield from feature_rows()
    yield from layer_rows()
    yield from forecast_rows()
    yield from paper_rows()


def feature_rows():
    """Compare oscillators with MiniRocket and MultiRocket-Hydra."""
    features = record("oscillator_features")
    rocket, hydra = "MiniRocketClassifier", "MultiRocketHydraClassifier"
    for part, count in (("all", len(features["sets"])), ("others", len(features["sets"]) - len(features["chosen_on"]))):
        mean = features["mean"][part]
        ours, *theirs = (
            f"{100 * mean[name]['accuracy']:.1f} %, {mean[name]['seconds']:.2g} s"
            for name in ("OscillatorClassifier", rocket, hydra)
        )
        what = f"{count} UCR sets{' that no setting was chosen on' if part == 'others' else ''}: accuracy, time per set"
        ahead = mean["OscillatorClassifier"]["accuracy"] >= max(mean[rocket]["accuracy"], mean[hydra]["accuracy"])
        beside = f"MiniRocket {theirs[0]}; {bold(f'MultiRocket-Hydra {theirs[1]}', not ahead)}"
        yield what, bold(ours, ahead), beside, "oscillator_features"


def layer_rows():
    """Compare layers with `torch.nn.LSTM` at equal time, and by the time they take."""
    ordinary = record("ordinary_tasks")
    tasks = {row["task"]: row["columns"] for row in ordinary["rows"]}
    seconds = f"{ordinary['settings']['seconds']:g} s of training each"
    for task, what, peer, write in (
        (
            "permuted digits, pixel by pixel",
            "permuted digits pixel by pixel, ",
            "LRU",
            lambda x: f"{100 - 100 * x:.0f} %",
        ),
        ("next character", "next character, bits (less is better), ", "minGRU", lambda x: f"{x:.2f}"),
        ("sine at irregular times", "sine at irregular times, mse, ", "minGRU", lambda x: f"{x:.4f}"),
    ):
        means = {name: column["mean"] for name, column in tasks[task].items()}
        best = min(means, key=lambda name: means[name])
        ours, lstm, other = (
            bold(f"`{label}` {write(means[name])}" if label != peer else f"{label} {write(means[name])}", name == best)
            for name, label in (("stack", "Stack"), ("nn.LSTM", "nn.LSTM"), (peer, peer))
        )
        yield what + seconds, ours, f"{lstm}, {other}", "ordinary_tasks"
    for name, shape, where in (
        ("oscillator_scan", "1000x128x128", "2 CPU cores"),
        ("oscillator_scan_h200", "1000x128x128", "an H200"),
    ):
        times = record(name)[shape]
        yield (
            f"forward and backward, 1000 steps, batch 128, 128 units, {where}",
            bold(f"`UnICORNN` {milliseconds(times['layer(H, H), ms'])}"),
            f"`nn.LSTM` {milliseconds(times['LSTM(H, H), ms'])}",
            name,
        )


def forecast_rows():
    """Compare the forecaster with simple forecasts."""
    forecasts = record("forecasting")
    count, ahead = len(forecasts["series"]), forecasts["ahead_of_all"]
    behind = sum(any(ratio > 1.0005 for ratio in one["ratios"].values()) for one in forecasts["series"].values())
    yield (
        f"{count} series forecast, beside previous value, seasonal naive and ridge on lags",
        f"ahead of all three on {ahead}",
        f"ahead of it on {behind}",
        "forecasting",
    )


def paper_rows():
    """Compare stored results with the papers' numbers."""
    mnist = {one["name"]: one for one in experiment("rusch2021_table-8_ours")["numbers"]}
    one = next(value for name, value in mnist.items() if name.startswith("permuted MNIST, 128 units"))
    views = next(
        each
        for each in experiment("rusch2021_table-1_ours")["numbers"]
        if each["name"] == "UnICORNN, 3 layers of 128, with views"
    )
    yield (
        "permuted MNIST, `UnICORNN`, 3 layers of 128, recipe of ours, three seeds",
        f"{one['value']:.1f} ± {one['spread']:.1f} %",
        bold(f"rusch2021 {one['expected']:g} %"),
        "experiments/rusch2021_table-8_ours",
    )
    promised = record("half_life_h200")["half_lives"]
    yield (
        "permuted MNIST, proved to keep half of a difference for 784 steps, three seeds",
        accuracy(promised["784"]),
        f"without the promise {accuracy(promised['none'])}",
        "half_life_h200",
    )
    yield (
        "permuted MNIST, augmented images and a longer training, one seed",
        f"{views['value']:.1f} %",
        f"rusch2021 {views['expected']:g} %, without augmented images",
        "experiments/rusch2021_table-1_ours",
    )
    table = next(
        table
        for table in experiment("alemohammad2021_table-1_reduced")["tables"]
        if table["caption"].startswith("4 columns over")
    )
    ours, theirs = table["rows"][0][1].split(" / ")
    yield (
        f"recurrent NTK with the printed grid, {table['caption'].split()[3]} UCR sets",
        f"{ours} %",
        bold(f"alemohammad2021 {theirs} %"),
        "experiments/alemohammad2021_table-1_reduced",
    )


def accuracy(trained):
    """Write a mean accuracy and its deviation over seeds."""
    return f"{100 * trained['mean_accuracy']:.2f} ± {100 * trained['standard_deviation']:.2f} %"


def bold(text, on=True):
    """Mark the better side of a row."""
    return f"**{text}**" if on else text


def milliseconds(value):
    """Write a time in milliseconds with the digits that mean something."""
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def table():
    """Write the table in Markdown."""
    lines = ["| measured | sostenuto | beside it | record |", "|---|---|---|---|"]
    lines += [
        f"| {what} | {ours} | {theirs} | [{Path(name).name}](results/{name}.json) |"
        for what, ours, theirs, name in rows()
    ]
    return "\n".join(lines)


def verdicts():
    """Count the verdicts of the papers' tables and figures."""
    stored = [experiment(path.stem)["verdict"] for path in (RESULTS / "experiments").glob("*.json")]
    lost = stored.count("law fails") + stored.count("worse") + stored.count("differs")
    held = stored.count("law holds") + stored.count("reproduced") + stored.count("better")
    undecided = len(stored) - lost - held
    return (
        f"Of {len(stored)} tables and figures of the papers that were run again {held} hold, {lost} fail, are worse "
        f"or differ, and {undecided} are undecided or not judged: [docs/experiments.md](docs/experiments.md)."
    )


def claims():
    """Give what pages under ``docs`` say about results, each with its page."""
    features, kernels = record("oscillator_features"), record("ucr_kernels")
    every = features["mean"]["all"]
    ours, rocket = every["OscillatorClassifier"], every["MiniRocketClassifier"]
    yield (
        "which_model",
        f"{100 * ours['accuracy']:.1f} % over {len(features['sets'])} UCR sets at {ours['seconds']:.2g} s per set; "
        f"MiniRocket {100 * rocket['accuracy']:.1f} %",
    )
    small = [features["sets"][name] for name in kernels["sets"]]

    def mean(model, what):
        return sum(one[model][what] for one in small) / len(small)

    oscillators, peer = (
        f"{100 * mean(name, 'accuracy'):.1f} %" for name in ("OscillatorClassifier", "MiniRocketClassifier")
    )
    rntk, rbf, nearest = (
        f"{100 * kernels['mean_accuracy'][name]:.1f} %" for name in ("rntk", "rbf", "nearest_neighbor")
    )
    yield "which_model", f"oscillators {oscillators} and RNTK {rntk} on the {len(small)} small sets"
    yield (
        "which_model",
        f"oscillators {oscillators}, RNTK {rntk} | MiniRocket {peer}, RBF kernel {rbf}, nearest neighbor {nearest} |",
    )
    yield "which_model", f"**oscillators {mean('OscillatorClassifier', 'seconds'):.2f}**"
    yield (
        "tutorials/small_data",
        f"accuracy of {oscillators}, the RNTK {rntk}, an RBF kernel {rbf} and the nearest neighbor {nearest}",
    )
    pairs = [(row["columns"]["stack"], row["columns"]["nn.LSTM"]) for row in record("ordinary_tasks")["rows"]]
    margins = [(b["mean"] - a["mean"], a["standard_error"] + b["standard_error"]) for a, b in pairs]
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    ahead, behind = (words[sum(sign * gap > error for gap, error in margins)] for sign in (1, -1))
    yield (
        "which_model",
        f"beyond both standard errors on {ahead} of {words[len(pairs)]} short tasks, behind on {behind}",
    )
    yield "tutorials/replace_lstm", f"ahead beyond both standard errors on {ahead}, and behind on {behind}"
    cpu, gpu = (
        record(name)["1000x128x128"]["LSTM(H, H) / layer(H, H)"] for name in ("oscillator_scan", "oscillator_scan_h200")
    )
    yield "which_model", f"{cpu:.2g} times the rate of `nn.LSTM` on two CPU cores, {gpu:.2g} times on an H200"
    grids = {
        table["caption"].split(" over ")[0]: table["rows"][0]
        for table in experiment("alemohammad2021_table-1_reduced")["tables"]
    }
    printed = [cell.split(" / ")[0] for cell in grids["4 columns"]]
    yield "which_model", f"RNTK {printed[1]} % | **RBF {printed[3]} %**"
    wide = grids["RNTK (wide), NTK (wide), RBF (wide), Polynomial (wide)"]
    choices = {name: len(family_points(name)) for name in ("RNTK", "RBF")}
    yield (
        "which_model",
        f"RNTK or its Gaussian process {wide[1]} %, of {choices['RNTK']} kernels | "
        f"RBF {wide[3]} %, of {choices['RBF']}: not judged",
    )
    half = record("half_life_h200")["half_lives"]
    yield "tutorials/memory", f"{accuracy(half['784'])} beside {accuracy(half['none'])}"


def replaced(text):
    """Return the README with its table written anew."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n\n{table()}\n\n{verdicts()}\n\n{text[end:]}"


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(replaced(path.read_text(encoding="utf-8")), encoding="utf-8")
