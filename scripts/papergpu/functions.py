"""Transcendental functions of exact numbers, to far more bits than a format has.

A value is a whole number of 2**-`BITS`; series are summed until their terms are nought. Their error
is some units of that, and no result but those that are exact (of 0, of powers of two, of whole
exponents) is so near a number of 24 or 53 bits, or the middle between two, that it would matter.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

BITS = 700
ONE = 1 << BITS


def fixed(value: Fraction) -> int:
    """A number as a whole number of units, cut."""
    return value.numerator * ONE // value.denominator


def arctangents(inverse: int, sign: int) -> int:
    """atan(1 / inverse) for a `sign` of -1, atanh for +1."""
    power, total, number = ONE // inverse, 0, 1
    while power:
        total += power // number
        power = sign * (power // (inverse * inverse))
        number += 2
    return total


@cache
def pi() -> int:
    return 4 * (4 * arctangents(5, -1) - arctangents(239, -1))


@cache
def ln2() -> int:
    return 2 * arctangents(3, 1)


def exponential(units: int) -> int:
    """e to a power, of 0 and more."""
    doublings = max(0, units.bit_length() - BITS + 8)
    term, total, number = ONE, ONE, 0
    small = units >> doublings
    while term:
        number += 1
        term = term * small // (ONE * number)
        total += term
    for _ in range(doublings):
        total = total * total >> BITS
    return total


def power_of_two(x: Fraction) -> Fraction:
    """2 to the power of x."""
    whole = x.numerator // x.denominator
    rest = x - whole
    if not rest:
        return Fraction(2) ** whole
    return Fraction(exponential(fixed(rest) * ln2() >> BITS), ONE) * Fraction(2) ** whole


def logarithm(x: Fraction) -> Fraction:
    """The power of two that x is, of a positive x."""
    whole = x.numerator.bit_length() - x.denominator.bit_length()
    rest = x / Fraction(2) ** whole
    if rest == 1:
        return Fraction(whole)
    ratio = fixed((rest - 1) / (rest + 1))
    power, total, number = ratio, 0, 1
    square = ratio * ratio >> BITS
    while power not in (0, -1):
        total += power // number
        power = power * square >> BITS
        number += 2
    return whole + Fraction(2 * total, ln2())


def tangent(x: Fraction) -> Fraction:
    """The hyperbolic tangent of x."""
    if abs(x) > 64:  # nearer to 1 than any format tells
        near = 1 - Fraction(1, 1 << 150)
        return near if x > 0 else -near
    if abs(x) < Fraction(1, 1 << 100):
        return x - x**3 / 3
    grown = exponential(fixed(2 * abs(x)))
    found = Fraction(grown - ONE, grown + ONE)
    return found if x > 0 else -found


def sine(x: Fraction, quarters: int = 0) -> Fraction:
    """The sine of x and as many quarters of a turn: of one, the cosine."""
    if not quarters and abs(x) < Fraction(1, 1 << 100):
        return x - x**3 / 6
    # No float is beyond 2**128: the turns that are taken away cost no more than as many bits.
    quarter = pi() // 2
    turns, rest = divmod(fixed(x), quarter)
    number = (turns + quarters) % 4
    term, total, step = (ONE, 0, 0) if number & 1 else (rest, 0, 1)
    while term not in (0, -1):
        total += term
        term = -(term * rest * rest >> 2 * BITS) // ((step + 1) * (step + 2))
        step += 2
    return Fraction(-total if number & 2 else total, ONE)
