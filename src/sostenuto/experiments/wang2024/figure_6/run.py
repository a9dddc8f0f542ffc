"""Figure 6 of wang2024: memory of a transformer trained on film reviews, beside an LSTM's."""

from statistics import fmean, median

from sostenuto.experiments import Settings, Workbench
from sostenuto.experiments.tasks.long_data import cut, word_stand_in
from sostenuto.experiments.tasks.tails import is_otherwise, shares, why_undecided
from sostenuto.experiments.tasks.word_memory import draw_words, fluctuation, left_at_the_end, sentiment_models

MODELS = {"lstm": "bidirectional LSTM", "transformer": "transformer encoder"}


def run(settings: Settings, bench: Workbench) -> None:
    """Train both, say each word again and again, compare how the answers settle."""
    whole = word_stand_in(bench.seed) if settings.dataset == "words" else bench.data(settings.dataset)
    trained = sentiment_models(bench, settings, cut(whole, settings.longest), MODELS)
    left, rises, kinds, rows = {}, {}, {}, []
    for prefix, name in MODELS.items():
        results = trained[prefix]
        words = [result["words"] for result in results]
        left[prefix] = [median(left_at_the_end(text[word]["memory"]) for text in words) for word in settings.words]
        rises[prefix] = fmean(fluctuation(text[word]["memory"]) for text in words for word in settings.words)
        kinds[prefix] = [text[word]["kind"] for text in words for word in settings.words]
        bench.number(f"{name}: test accuracy", [100 * result["test"] for result in results])
        for seed, text in zip(bench.seeds(len(words)), words, strict=True):
            rows += [
                (name, seed, word, was["kind"], left_at_the_end(was["memory"]), fluctuation(was["memory"]))
                for word, was in text.items()
            ]
        draw_words(bench, name, words[0])
    slower = all(theirs > ours for theirs, ours in zip(left["transformer"], left["lstm"], strict=True))
    told = "; ".join(f"{MODELS[prefix]} {', '.join(f'{item:.2g}' for item in row)}" for prefix, row in left.items())
    bench.law("the transformer forgets more slowly", slower, told, seeds=settings.seeds)
    told = ", ".join(f"{MODELS[prefix]} {rise:.3g}" for prefix, rise in rises.items())
    bench.law("its memory fluctuates more", rises["transformer"] > rises["lstm"], told, seeds=settings.seeds)
    other = {prefix: shares(each, is_otherwise) for prefix, each in kinds.items()}
    told = ", ".join(f"{MODELS[prefix]} {100 * least:.0f} %" for prefix, (least, _) in other.items())
    least, most = (share > 0.5 for share in other["transformer"])
    untold = why_undecided(least, most, kinds["transformer"])
    bench.law("its memory does not decay exponentially", least, told, seeds=settings.seeds, undecided=untold)
    columns = ("model", "seed", "word", "tail", "left in the last quarter", "rises of log₁₀ M, summed")
    bench.table("Memory of repeated words", columns, rows)
    bench.note(
        "The score is the logarithm of the odds of a positive review; M(n) is its change by the n-th repetition."
    )
