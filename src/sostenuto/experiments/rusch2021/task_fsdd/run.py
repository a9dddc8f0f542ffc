"""A long task on real data beside rusch2021's EigenWorms: spoken digits from raw audio."""

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.contest import compete, judge_lead, report
from sostenuto.experiments.tasks.long_data import cut, leveled, wave_stand_in

NAMES = {"unicornn": "UnICORNN", "lstm": "LSTM, 128 units"}


def run(settings: Settings, bench: Workbench) -> None:
    """Train, choose the epoch on validation, test once a seed."""
    if settings.dataset == "stand-in":
        whole = wave_stand_in(bench.seed, count=120, steps=settings.longest, channels=1)
    else:
        whole = cut(bench.data(settings.dataset), settings.longest)
    whole = leveled(whole) if settings.level else whole
    trained = compete(bench, settings, whole, NAMES)
    for prefix, name in NAMES.items():
        report(bench, name, trained[prefix])
        short = name.split(",")[0]
        bench.number(f"seconds of training, {short}", [record["seconds"] for record in trained[prefix].records])
    ahead = 100 * (trained["unicornn"].mean - trained["lstm"].mean)
    pair = [(trained["unicornn"], trained["lstm"])]
    judge_lead(bench, "UnICORNN is ahead of the LSTM by ten points", pair, f"{ahead:+.1f} points", margin=0.1)
