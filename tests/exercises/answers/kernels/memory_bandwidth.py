"""Memory bandwidth: sectors are counted by the page's own model."""

from math import ceil

from snippets.sectors import sectors


def every_third_float() -> tuple[str, str, str]:
    addresses = sectors.strided(3)
    used = sectors.efficiency(addresses)
    return (
        f"{sectors.sectors(addresses)} sectors",
        f"{100 * used:.0f} %",
        f"{3.35 * used:.2f} TB/s",
    )


def structures() -> tuple[str, str]:
    together, apart = sectors.strided(6), sectors.strided(1)
    return f"{sectors.sectors(together)} sectors", f"{sectors.sectors(apart)} sectors"


def another_card() -> tuple[str, str]:
    each = 2e12 * 400e-9 / 114
    return f"{each:,.0f} bytes", f"{ceil(each / 256 / 16)} loads"


def head_and_tail() -> tuple[str, str, str]:
    start, count = 4, 1000
    places = [start + 4 * i for i in range(count)]
    head = next(i for i, place in enumerate(places) if place % 16 == 0)
    quads, tail = divmod(count - head, 4)
    return f"{head} elements", f"{quads} quads", f"{tail} element"


def stages_of_a_ring() -> tuple[str, str]:
    stages = 40 // 8 + 1
    return f"{stages} stages", f"{100 * stages * 8 / 227:.0f} %"
