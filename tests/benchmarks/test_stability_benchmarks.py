"""The benchmarks of certificates and promises, on a few small cases."""

from dataclasses import replace

from sostenuto.benchmarks import certificates, half_life, memory_bounds


def test_a_false_certificate_is_counted(monkeypatch):
    monkeypatch.setattr(certificates, "rate_limits", lambda *_: (-1.0, -1.0))
    rows = [certificates.judge(index) for index in range(8)]
    record = certificates.summarize(rows, 0)
    assert record["contradicted"]["norm"] == record["certified"]["norm"] > 0
    assert record["unstable_at_some_slopes"] == 8


def test_promises_are_kept_and_runs_of_one_seed_see_the_same_batches():
    task = replace(half_life.DIGITS, steps=70, epochs=2)
    record = half_life.run(progress=False, task=task, seeds=(0,), half_lives=(None, None, 100.0), sequences=64)
    first, again = record["half_lives"]["none"]["runs"]
    assert first == again
    assert record["half_lives"]["100"]["runs"][0]["remembers_at_least"] >= 100 > first["remembers_at_least"]


def test_the_adversary_comes_near_the_bounds_and_breaks_false_ones(monkeypatch):
    record = memory_bounds.run(progress=False, count=2)
    for kind in memory_bounds.KINDS:
        assert record[kind]["broken"] == 0
        assert 0.4 < record[kind]["remembers"]["median"] < 1 + 1e-6
    true = memory_bounds._claim

    def half(*options):
        claim = true(*options)
        return claim if claim is None else replace(claim, rate=claim.rate / (2 if options[2] == "remembers" else 0.5))

    monkeypatch.setattr(memory_bounds, "_claim", half)
    for kind in memory_bounds.KINDS:
        assert memory_bounds.judge(kind, 0)["broken"] > 0, kind
