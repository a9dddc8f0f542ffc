"""A long task on real data beside rusch2021's EigenWorms: spoken digits from raw audio."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete
from sostenuto.experiments.tasks.long_data import cut, leveled, wave_stand_in

NAMES = {"unicornn": "UnICORNN", "lstm": "LSTM, 128 units"}


def run(settings: Settings, bench: Workbench) -> None:
    """Train, choose the epoch on validation, test once a seed."""
    if settings.dataset == "stand-in":
        whole = wave_stand_in(bench.seed, count=120, steps=settings.longest, channels=1)
    else:
        whole = cut(bench.data(settings.dataset), settings.longest)
    whole = leveled(whole) if settings.level else whole
    found = compete(bench, settings, whole, NAMES)
    for prefix, name in NAMES.items():
        bench.number(name, [100 * score for score in found[prefix].scores])
        short = name.split(",")[0]
        bench.number(f"seconds of training, {short}", [record["seconds"] for record in found[prefix].records])
    ahead = 100 * (found["unicornn"].mean - found["lstm"].mean)
    bench.law("UnICORNN is ahead of the LSTM by ten points", ahead >= 10, f"{ahead:+.1f} points")
