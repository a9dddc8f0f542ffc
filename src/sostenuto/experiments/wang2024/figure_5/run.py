"""Figure 5 of wang2024: memory of LSTMs trained on film reviews, for words said again and again."""

from itertools import chain
from statistics import fmean

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.long_data import cut, word_stand_in
from sostenuto.experiments.tasks.tails import is_exponential, shares, why_undecided
from sostenuto.experiments.tasks.word_memory import draw_words, repetitions_to_forget, sentiment_models

MODELS = {"single": "bidirectional LSTM", "stacked": "stacked bidirectional LSTM"}


def run(settings: Settings, bench: Workbench) -> None:
    """Train both, say each word again and again, compare how the answer settles."""
    whole = word_stand_in(bench.seed) if settings.dataset == "words" else bench.data(settings.dataset)
    trained = sentiment_models(bench, settings, cut(whole, settings.longest), MODELS)
    *simple, strange = settings.words
    kinds, slower, rows, evidence = [], [], [], []
    for prefix, name in MODELS.items():
        results = trained[prefix]
        words = [result["words"] for result in results]
        until = [{word: repetitions_to_forget(text[word]["memory"]) for word in text} for text in words]
        kinds.append([text[word]["kind"] for text in words for word in simple])
        slower.append(fmean(epoch[strange] > max(epoch[word] for word in simple) for epoch in until))
        evidence.append(
            f"{name}: " + "; ".join(", ".join(f"{word} {n}" for word, n in epoch.items()) for epoch in until)
        )
        bench.number(f"{name}: test accuracy", [100 * result["test"] for result in results])
        for seed, text, count in zip(bench.seeds(len(words)), words, until, strict=True):
            rows += [(name, seed, word, was["kind"], was["rate"] or "–", count[word]) for word, was in text.items()]
        draw_words(bench, name, words[0])
    exponential = [shares(each, is_exponential) for each in kinds]
    told = ", ".join(
        f"{100 * share:.0f} % ({name})" for (share, _), name in zip(exponential, MODELS.values(), strict=True)
    )
    least, most = (min(each) > 0.5 for each in zip(*exponential, strict=True))
    untold = why_undecided(least, most, list(chain(*kinds)))
    bench.law("simple words are forgotten exponentially", least, told, seeds=settings.seeds, undecided=untold)
    bench.law("a strange word is forgotten more slowly", min(slower) > 0.5, " | ".join(evidence), seeds=settings.seeds)
    columns = ("model", "seed", "word", "tail", "rate a repetition", "repetitions until 1 %")
    bench.table("Memory of repeated words", columns, rows)
    bench.note(
        "The score is the logarithm of the odds of a positive review; M(n) is its change by the n-th repetition."
    )
