"""Text from users' files, made safe to show: one line, no control characters, a bounded width."""

import re
import unicodedata

_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
_WIDE = frozenset("mwMW@%…—")
_REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """Replace what neither HTML nor XML can hold, and the marks that turn the direction of the text around them.

    >>> clean("a" + chr(0) + "b")
    'a�b'
    """
    return _UNSHOWABLE.sub(_REPLACEMENT, text)


def one_line(text: str) -> str:
    r"""Return clean text with every run of white space as one space.

    >>> one_line("a\n\t b ")
    'a b'
    """
    return " ".join(clean(text).split())


def columns(text: str) -> float:
    """Estimate the width of a text in average letters: capitals are wider, letters of East Asian scripts count double.

    >>> columns("abc"), columns("日本")
    (3.0, 4.0)
    """
    return float(sum(_letter_columns(letter) for letter in text))


def shorten(text: str, most: int) -> str:
    """Cut the middle out of a text wider than ``most`` letters: names often differ at the end.

    >>> shorten("left_wrist_accelerometer_x", 12)
    'left_wr…r_x'
    """
    line = one_line(text)
    if columns(line) <= most:
        return line
    tail_room = (most - 1) // 3
    return _fit(line, most - 1 - tail_room) + "…" + _fit(line[::-1], tail_room)[::-1]


def _letter_columns(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 2.0
    if letter in _WIDE:
        return 1.5
    return 1.25 if letter.isupper() else 1.0


def _fit(text: str, room: int) -> str:
    used = 0.0
    for position, letter in enumerate(text):
        used += _letter_columns(letter)
        if used > room:
            return text[:position]
    return text
