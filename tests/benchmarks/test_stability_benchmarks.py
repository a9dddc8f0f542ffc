"""The benchmark of certificates on a few systems: a certificate that is false is counted as contradicted."""

from sostenuto.benchmarks import certificates


def test_a_false_certificate_is_counted(monkeypatch):
    monkeypatch.setattr(certificates, "rate_limits", lambda *_: (-1.0, -1.0))
    rows = [certificates.judge(index) for index in range(8)]
    record = certificates.summarize(rows, 0)
    assert record["contradicted"]["norm"] == record["certified"]["norm"] > 0
    assert record["unstable_at_some_slopes"] == 8
