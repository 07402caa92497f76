"""What eight bits hold."""

from snippets.float_formats.float_formats import E2M1, E4M3, E5M2, FORMATS, scaled


def the_gap_at_three_hundred() -> tuple[str, str]:
    return f"{E4M3.cast(300):g}", f"{E5M2.cast(300):g}"


def values_in_a_byte() -> tuple[str, str]:
    return tuple(f"{2 * len(form.values) - 1} values" for form in FORMATS[:2])


def what_becomes_zero() -> tuple[str, str]:
    counts = []
    for form in (E4M3, E5M2):
        low, high = 0.0, 8.0
        for _ in range(80):  # halve the interval between what is lost and what is kept
            middle = (low + high) / 2
            kept = scaled([8.0, middle], form)[1][1] > 0
            low, high = (low, middle) if kept else (middle, high)
        counts.append(8 / high)
    return f"{counts[0] / 1e3:.0f} thousand times", f"{counts[1] / 1e9:.1f} billion times"


def an_outlier_in_four_bits() -> tuple[str, str]:
    lost = []
    for largest in (4.0, 16.0):
        values = [k / 16 for k in range(1, 16)]
        lost.append(scaled([*values, largest], E2M1)[1].count(0.0))
    return f"{lost[0]}", f"{lost[1]}"


def bytes_of_the_scales() -> tuple[str, str]:
    elements = 8192 * 7168
    rows, blocks = elements / 128 * 4, elements / 128**2 * 4
    return f"{rows / 1e6:.2f} MB", f"{blocks / 1e3:.0f} kB"
