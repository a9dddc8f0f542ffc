from hypothesis import given
from hypothesis import strategies as st

from sostenuto.report.text import clean, columns, one_line, shorten


@given(st.text(max_size=80), st.integers(4, 40))
def test_shortened_text_fits_and_keeps_both_ends(text: str, most: int) -> None:
    short = shorten(text, most)
    line = one_line(text)
    assert columns(short) <= most + 1.5
    if "…" not in line and "…" in short:
        head, tail = short.split("…")
        assert line.startswith(head)
        assert line.endswith(tail)


def test_direction_marks_and_lone_surrogates_are_replaced() -> None:
    assert clean("\u202eevil\u2066\ud800\x00") == "\ufffdevil\ufffd\ufffd\ufffd"
    clean("\ud800").encode("utf-8")


def test_letters_that_make_up_other_scripts_are_kept() -> None:
    text = "naïve 日本語 हिन्दी 👩‍🔬"
    assert clean(text) == text
