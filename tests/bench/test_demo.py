from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.bench.demo import LINES, Unfit, agree, between_marks, checked, difference

TOKEN = "0123456789abcdef"
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers()
WORDS = st.text(st.characters(categories=["Ll", "Lu", "Po", "Zs"]), max_size=12)


def output(*parts: bytes) -> bytes:
    """What a child prints: something of the import, two demos, something at the end."""
    names = (b"demo 1", b"demo 2", b"end")
    marks = [b"\n" + TOKEN.encode() + b" " + name + b"\n" for name in names]
    head, first, second, tail = parts
    return head + marks[0] + first + marks[1] + second + marks[2] + tail


@given(st.tuples(*[st.binary(max_size=50)] * 4))
def test_the_two_demos_are_cut_out_of_what_a_child_prints(parts: tuple[bytes, ...]) -> None:
    assert between_marks(output(*parts), TOKEN) == parts[1:3]


def test_a_demo_that_prints_nothing_lies_between_its_marks() -> None:
    assert between_marks(output(b"", b"", b"", b""), TOKEN) == (b"", b"")


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"hello\n",
        output(b"", b"a\n", b"a\n", b"").replace(b" end\n", b""),
        output(b"", b"a\n", b"a\n", b"").replace(TOKEN.encode(), b"fedcba9876543210"),
        output(b"", output(b"", b"forged", b"forged", b""), b"a\n", b""),
    ],
)
def test_marks_that_are_missing_or_too_many_are_unfit(cut: bytes) -> None:
    with pytest.raises(Unfit):
        between_marks(cut, TOKEN)


def test_what_was_printed_twice_is_published() -> None:
    assert checked("µ = 1.5\n".encode(), "µ = 1.5\n".encode()) == "µ = 1.5\n"
    longest = b"x\n" * LINES
    assert checked(longest, longest) == longest.decode()


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (b"", b"", "printed nothing"),
        (b" \n\t\n", b" \n\t\n", "printed nothing"),
        (b"x\n" * (LINES + 1), b"x\n" * (LINES + 1), f"{LINES + 1} lines; the limit is {LINES}"),
        (b"x" * (200 * LINES + 1), b"x" * (200 * LINES + 1), "characters; the limit"),
        (b"a\xff\n", b"a\xff\n", "byte 0xff"),
        (b"a\n", b"\x80\n", "byte 0x80"),
        (b"\xed\xa0\x80", b"\xed\xa0\x80", "byte 0xed"),  # half a surrogate pair
        (b"a\n1\n", b"a\n2\n", "line 2 is '2' where '1' stood"),
        (b"a\n", b"", "line 1 is 'nothing' where 'a' stood"),
        (b"a\n", b"a", "the line ends differ"),
    ],
)
def test_what_cannot_be_published_is_unfit(first: bytes, second: bytes, says: str) -> None:
    with pytest.raises(Unfit, match=re.escape(says)):
        checked(first, second)


@given(st.binary(max_size=80), st.binary(max_size=80) | st.none())
def test_a_check_ends_in_text_or_in_unfit(first: bytes, second: bytes | None) -> None:
    try:
        text = checked(first, first if second is None else second)
    except Unfit as unfit:
        assert str(unfit)
    else:
        assert text.encode() == first
        assert text.strip()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("error 3.1e-08", "error 3.1e-8"),
        ("took 1.0000", "took 1.0005"),
        ("took 1000", "took 999.5"),
        ("sum -0.0", "sum 0.0"),
        ("sum -2.5", "sum -2.501"),
        ("x 9.999 y", "x 10.001 y"),
        ("x  9.999 y", "x 10.001 y"),  # padded to a width
        (" 9.999", "10.001"),
        ("9.999  y", "10.001 y"),
        ("1e999", "1e999"),
    ],
)
def test_numbers_may_be_close(first: str, second: str) -> None:
    assert agree(first, second)
    assert agree(second, first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("took 1.000", "took 1.002"),
        ("sum 1.0", "sum -1.0"),
        ("sum 0", "sum 1e-9"),
        ("passed 3", "failed 3"),
        ("3 passed", "3"),
        ("1 2", "1"),
        ("1 2", "12"),
        ("a b", "ab"),
        ("a\n1\n", "a 1\n"),
        ("1.0\n", "1.0"),
        ("nan", "1.0"),
        ("inf", "nan"),
        ("(37, 781)", "(37, 782)"),
    ],
)
def test_all_else_must_be_the_same(first: str, second: str) -> None:
    assert not agree(first, second)
    assert not agree(second, first)


@given(st.text())
def test_a_text_agrees_with_itself(text: str) -> None:
    assert agree(text, text)


@given(st.text("a1.-+e \n5", max_size=12), st.text("a1.-+e \n5", max_size=12))
def test_agreement_goes_both_ways(first: str, second: str) -> None:
    assert agree(first, second) == agree(second, first)


@given(WORDS, NUMBERS, WORDS, st.integers(0, 40), st.sampled_from("xyzµ,;#"))
def test_a_changed_word_never_agrees(
    head: str, number: float, tail: str, place: int, letter: str
) -> None:
    text = f"{head} {number!r} {tail}"
    place %= len(text)
    changed = text[:place] + letter + text[place:]
    assert not agree(text, changed)


@given(st.floats(1e-300, 1e300), st.floats(-9e-4, 9e-4), st.sampled_from([1, -1]))
def test_a_number_within_the_tolerance_agrees_and_one_beyond_it_does_not(
    number: float, off: float, sign: int
) -> None:
    text = f"row sums {sign * number!r}, {sign * number!r}\n"
    assert agree(text, f"row sums {sign * number!r}, {sign * number * (1 + off)!r}\n")
    assert not agree(text, f"row sums {sign * number!r}, {sign * number * 1.0011!r}\n")


@given(st.text("ab\n\r1", max_size=12), st.text("ab\n\r1", max_size=12))
def test_the_difference_names_a_line_that_differs(first: str, second: str) -> None:
    said = difference(first, second)
    old, new = first.splitlines(), second.splitlines()
    if old == new:
        assert said == "the line ends differ"
        return
    found = re.match(r"line (\d+) is ", said)
    assert found
    index = int(found[1]) - 1
    assert old[:index] == new[:index]
    assert old[index : index + 1] != new[index : index + 1]


def test_a_difference_is_one_short_line() -> None:
    said = difference("a" * 5000, "b\x1b[31m" * 5000)
    assert len(said) < 200
    assert said.isprintable()
