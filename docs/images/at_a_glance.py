"""Draw the README's picture: ``python docs/images/at_a_glance.py`` writes ``at_a_glance.png`` beside this file.

Two panels read ``results/``. The third trains a Lipschitz RNN on the embedded digits (seed 0, about a minute on one
core), proves its memory and measures how fast differences of its states shrink while it reads test digits.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import sostenuto as so

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results"
BLUE, ORANGE, GRAY, INK = "#2563a8", "#c8640f", "#8b919b", "#1c2129"
LAGS = np.arange(161)


def features(axes):
    """Mean accuracy and seconds over 59 sets of the UCR archive."""
    record = json.loads((RESULTS / "oscillator_features.json").read_text(encoding="utf-8"))["record"]
    means = record["mean"]["all"]
    names = {
        "OscillatorClassifier": ("sostenuto\noscillators", BLUE, (9, 4), "left"),
        "MiniRocketClassifier": ("MiniRocket", GRAY, (9, -3), "left"),
        "MultiRocketHydraClassifier": ("MultiRocket-\nHydra", GRAY, (-9, -12), "right"),
    }
    for name, (label, color, offset, side) in names.items():
        point = means[name]["seconds"], 100 * means[name]["accuracy"]
        axes.plot(*point, "o", color=color, markersize=11)
        text = f"{label}\n{point[1]:.1f} %, {point[0]:.2g} s"
        axes.annotate(text, point, xytext=offset, textcoords="offset points", color=color, va="center", ha=side)
    axes.set(xscale="log", xlim=(0.15, 20), ylim=(85.7, 87.8), xlabel="seconds per set, fit and predict")
    axes.set_xticks([0.3, 1, 3, 10], labels=["0.3", "1", "3", "10"])
    axes.set_yticks([86, 86.5, 87, 87.5])
    axes.minorticks_off()
    axes.set_ylabel("mean test accuracy, %")
    axes.set_title(f"Classify in a third of a second\n{len(record['sets'])} UCR sets, one seed", loc="left")


def layers(axes):
    """Share of digits read right after equal training time and with equal sizes."""
    record = json.loads((RESULTS / "ordinary_tasks.json").read_text(encoding="utf-8"))["record"]
    columns = next(row for row in record["rows"] if "digits, pixel by pixel" in row["task"])["columns"]
    ranked = sorted(columns.items(), key=lambda pair: -pair[1]["mean"])
    names = [name if name != "stack" else "so.nn.Stack" for name, _ in ranked]
    right = [100 * (1 - column["mean"]) for _, column in ranked]
    errors = [100 * (column["standard_error"] or 0.0) for _, column in ranked]
    colors = [BLUE if name == "so.nn.Stack" else ORANGE if name == "nn.LSTM" else GRAY for name in names]
    axes.barh(names, right, xerr=errors, color=colors, ecolor=INK, height=0.66)
    for place, value in enumerate(right):
        axes.text(2, place, f"{value:.0f} %", va="center", color="white", fontweight="bold")
    axes.set(xlim=(0, 100), xlabel="digits read right, permuted pixel by pixel, %")
    settings = record["settings"]
    axes.set_title(
        f"Change one line\n{settings['seconds']:.0f} s on one core, {settings['parameters']:,} weights each", loc="left"
    )


def pixels(part):
    """Give the sequences of a part as a tensor."""
    return torch.stack([torch.as_tensor(np.asarray(each)) for each in part.sequences]).float()


def trained_layer():
    """Train a Lipschitz RNN on digits, pixel by pixel; weight decay keeps its recurrence provably contracting."""
    torch.manual_seed(0)
    digits = so.datasets.load("digits")
    x, y = pixels(digits.train), torch.as_tensor(np.asarray(digits.train.targets).astype(int))
    layer = so.nn.LipschitzRNN(1, 32, beta=1.0, gamma=0.5, step_size=0.05, batch_first=True)
    readout = torch.nn.Linear(32, 10)
    recurrent = [value for name, value in layer.named_parameters() if "hh" in name or "linear" in name]
    others = [value for name, value in layer.named_parameters() if "hh" not in name and "linear" not in name]
    slow = {"params": recurrent, "lr": 0.001, "weight_decay": 30.0}
    fast = {"params": [*others, *readout.parameters()], "lr": 0.01, "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([slow, fast])
    for _ in range(30):
        for rows in torch.randperm(len(x)).split(64):
            scores = readout(layer(x[rows])[0].amax(1))
            loss = torch.nn.functional.cross_entropy(scores, y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    test = pixels(digits.test)
    with torch.no_grad():
        found = readout(layer(test)[0].amax(1)).argmax(-1).numpy()
    print("test accuracy", float((found == np.asarray(digits.test.targets).astype(int)).mean()))
    return layer.double(), test.double()


def memory(axes):
    """Draw what is proved of a trained layer, and what is measured on test digits."""
    layer, test = trained_layer()
    proved = layer.memory_certificate()
    print(proved.summary())
    low, high = proved.curves(LAGS, euclidean=True)
    long = test[: len(test) // 4 * 4].reshape(-1, 256, 1)  # four digits in a row
    with torch.no_grad():
        start = torch.randn(2, len(long), 32, dtype=torch.float64)
        first, second = (layer(long, state[None])[0] for state in start)
        gaps = torch.cat([(start[0] - start[1])[:, None], first - second], dim=1).norm(dim=-1).numpy()
    shares = (gaps / gaps[:, :1])[:, : len(LAGS)]
    assert (shares <= high * (1 + 1e-6)).all()
    assert (shares >= low * (1 - 1e-6)).all()
    axes.fill_between(LAGS, np.maximum(low, 1e-6), high, color=BLUE, alpha=0.12, linewidth=0)
    axes.plot(LAGS, high, color=BLUE, label="proved: at most")
    axes.plot(LAGS, low, color=BLUE, linestyle="--", label="proved: at least")
    axes.plot(LAGS, shares[:40].T, color=ORANGE, alpha=0.25, linewidth=0.8)
    axes.plot([], [], color=ORANGE, label="measured on digits")
    axes.set(yscale="log", ylim=(1e-3, 4), xlim=(0, LAGS[-1]), xlabel="steps")
    axes.set_ylabel("share of a difference that is left")
    axes.legend(frameon=False, loc="lower left")
    axes.set_title("Know how long it remembers\na trained LipschitzRNN, whatever it reads", loc="left")


def main():
    """Draw the three panels."""
    plt.rcParams.update({"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.4, 3.7), layout="constrained")
    features(left)
    layers(middle)
    memory(right)
    figure.savefig(HERE / "at_a_glance.png", dpi=130)


if __name__ == "__main__":
    main()
