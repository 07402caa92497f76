"""Each fault that a list can be given is found, once, on its line, with its mend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import pytest
from conftest import Trial
from made_up_records import make_titles, write_library

from warpshelf.readings import crosscheck
from warpshelf.readings.model import Reading, Shelf

SHELF = """\
# What the shelf holds of softmax.
- id: online-softmax
  title: Online normalizer calculation for softmax
  url: https://arxiv.org/abs/1805.02867
  kind: paper
  authors: [Maxim Milakov, Natalia Gimelshein]
  year: 2018
  why: >-
    Shows how the maximum and the sum are found in one pass, which reads the row once less than
    before.
  level: intermediate
  lang: en
  tags: [softmax]
  needs: [roofline]
  added: "2026-11-21"

- id: roofline
  title: "Roofline: an insightful visual performance model"
  url: https://doi.org/10.1145/1498765.1498785
  kind: paper
  year: 2009
  why: Tells which of two limits a kernel meets first.
  also:
    - {what: recording, url: "https://www.youtube.com/watch?v=Cp7g1Ll4v0M"}
    - what: preprint
      url: https://arxiv.org/abs/0901.00001
"""
OTHER = """\
- id: a-post
  title: How a GPU waits
  url: https://example.org/waits
  kind: post
  why: Says what a warp waits for.
"""
LIST, SECOND = "docs/kernels/softmax.yml", "docs/kernels/waits.yml"


@dataclass(frozen=True)
class Fault:
    """A fault: what of which list is replaced by what, and what is said of it, once."""

    old: str
    new: str
    said: str
    second: bool = False  # in the second list
    fixed: bool = False  # by --fix
    after: str = ""  # what stands there then, if it is not `old`


ALSO = "or name the second address under also"
FAULTS = {
    # Values
    "unknown key": Fault(
        "  year: 2018", "  yaer: 2018", ":7: the key 'yaer' is unknown; write year"),
    "unknown key, another name": Fault(
        "  level: inter", "  difficulty: inter",
        ":11: the key 'difficulty' is unknown; write level"),
    "unknown kind": Fault("kind: post", "kind: blogpost", ":4: kind is 'blogpost'; write post",
                          second=True),
    "no why": Fault("  why: Says what a warp waits for.\n", "",
                    ":1: 'How a GPU waits' has no why; add `why: …`", second=True),
    "colon": Fault("How a GPU waits", "GPUs: how they wait",
                   ":2: an unquoted text holds a colon and a space; put it in double quotes",
                   second=True),
    "language": Fault("lang: en", "lang: cn", ":12: lang is 'cn', not a language code; write zh",
                      fixed=True, after="lang: zh"),
    "language with region": Fault(
        "lang: en", "lang: en-US", ":12: lang is 'en-US', not a language code; write en",
        fixed=True),
    "day without quotes": Fault(
        '"2026-11-21"', "2026-11-21",
        ':15: added: YAML reads 2026-11-21 as a date; write "2026-11-21", in quotes', fixed=True),
    "year in quotes": Fault("2018", '"2018"',
                            ":7: year is the text '2018'; write 2018, without quotes", fixed=True),
    "spaces at the end of a line": Fault("year: 2018", "year: 2018  ",
                                         ":7: the line ends in spaces; remove them", fixed=True),
    "spaces in quotes": Fault('"Roofline: an', '" Roofline: an',
                              ":18: title starts or ends in a space; remove it", fixed=True),
    "start in other words": Fault("  level: inter", "  start: yes\n  level: inter",
                                  ":11: start: YAML reads yes as true or false; write true, or "
                                  "leave the key out"),
    "start that is no flag": Fault("  level: inter", '  start: "yes"\n  level: inter',
                                   ":11: start is 'yes'; write true, or leave the key out"),
    "unread in other words": Fault("  level: inter", "  unread: no\n  level: inter",
                                   ":11: unread: YAML reads no as true or false; write true, or "
                                   "leave the key out"),
    "unread and to start with": Fault(
        "  level: inter", "  unread: true\n  start: true\n  level: inter",
        ":12: online-softmax: has both start and unread, but nobody here could open it; remove "
        "start, or read it and remove unread"),
    # Years
    "the preprint's year beside the venue": Fault(
        "  year: 2018", "  venue: ICLR 2019\n  year: 2018",
        ":8: online-softmax: year is 2018, but its venue is ICLR 2019; write 2019, or correct the "
        "venue", fixed=True, after="  venue: ICLR 2019\n  year: 2019"),
    "a year that the arXiv number denies": Fault(
        "  year: 2018", "  venue: arXiv\n  year: 2020",
        ":8: online-softmax: year is 2020, but its arXiv number is of 2018; write 2018, or correct "
        "the venue", fixed=True, after="  venue: arXiv\n  year: 2018"),
    "a year of neither of a venue's two": Fault(
        "  year: 2018", "  venue: Volume of 2018, printed 2020\n  year: 2017",
        ":8: online-softmax: year is 2017, but its venue is Volume of 2018, printed 2020; write "
        "2020, or correct the venue"),
    # Addresses
    "tracking": Fault(
        "1805.02867", "1805.02867?utm_source=feed",
        ":4: the url carries utm_source, which follows the reader; "
        "write https://arxiv.org/abs/1805.02867", fixed=True),
    "http where https is the norm": Fault(
        "https://arxiv.org/abs/1805", "http://arxiv.org/abs/1805",
        ":4: the url is http; write https://arxiv.org/abs/1805.02867", fixed=True),
    "http elsewhere": Fault(
        "https://example", "http://example",
        ":3: the url http://example.org/waits is http; write https://example.org/waits; a site "
        "without https is linked through an archived copy", second=True),
    "no scheme": Fault("https://example", "example",
                       ":3: url the URL 'example.org/waits' does not start with https:// and a "
                       "host; write it as https://…", second=True),
    "another scheme": Fault("https://example", "ftp://example",
                            ":3: url the URL 'ftp://example.org/waits' does not start with https://"
                            " and a host; write it as https://…", second=True),
    "short link": Fault("https://example.org/waits", "https://bit.ly/3xYz",
                        ":3: bit.ly hides where the url leads; open it and write the address it "
                        "ends at", second=True),
    "search": Fault("https://example.org/waits", "https://www.google.com/search?q=gpu",
                    ":3: the url is a search on google.com; write the address of what was meant",
                    second=True),
    "pdf": Fault("abs/1805.02867", "pdf/1805.02867v2.pdf",
                 ":4: the url is not in the usual form of arXiv; "
                 "write https://arxiv.org/abs/1805.02867", fixed=True),
    "old resolver": Fault("https://doi.org", "http://dx.doi.org",
                          ":19: the url is http, and is not in the usual form of a DOI; "
                          "write https://doi.org/10.1145/1498765.1498785", fixed=True),
    "short form": Fault('"https://www.youtube.com/watch?v=Cp7g1Ll4v0M"',
                        '"https://youtu.be/Cp7g1Ll4v0M?si=x"',
                        ":24: the url carries si, which follows the reader, and is not in the "
                        "usual form of YouTube; write https://www.youtube.com/watch?v=Cp7g1Ll4v0M",
                        fixed=True),
    "repository": Fault("https://example.org/waits", "https://www.github.com/a/b.git",
                        ":3: the url is not in the usual form of GitHub; "
                        "write https://github.com/a/b", second=True, fixed=True,
                        after="https://github.com/a/b"),
    # Works
    "id twice": Fault("id: a-post", "id: roofline", ":1: id 'roofline' is used twice; rename one "
                      "(first at docs/kernels/softmax.yml:17)", second=True),
    "work twice": Fault(
        "https://example.org/waits", "https://arxiv.org/abs/1805.02867",
        ":3: arxiv:1805.02867 is on the shelf already, as 'Online normalizer calculation for "
        "softmax'; keep one (first at docs/kernels/softmax.yml:2)", second=True),
    "preprint of another entry": Fault(
        "https://example.org/waits", "https://arxiv.org/abs/0901.00001",
        ":3: arxiv:0901.00001 is on the shelf already, as 'Roofline: an insightful visual "
        "performance model'; keep one (first at docs/kernels/softmax.yml:17)", second=True),
    "another entry as preprint": Fault(
        "0901.00001", "1805.02867",
        ":26: arxiv:1805.02867 is on the shelf already, as 'Online normalizer calculation for "
        "softmax'; keep one (first at docs/kernels/softmax.yml:2)"),
    "version twice": Fault(
        '{what: recording, url: "https://www.youtube.com/watch?v=Cp7g1Ll4v0M"}',
        "{what: published, url: https://arxiv.org/abs/0901.00001}",
        ":26: arxiv:0901.00001 is under also twice; remove it"),
    "itself as recording": Fault(
        "https://www.youtube.com/watch?v=Cp7g1Ll4v0M", "https://doi.org/10.1145/1498765.1498785",
        ":24: doi:10.1145/1498765.1498785 is the entry's own url; remove it"),
    "one title, two works": Fault(
        "title: How a GPU waits", "title: online normalizer calculation, for Softmax",
        ":2: the title 'online normalizer calculation, for Softmax' also stands at "
        f"{LIST}:2, for arxiv:1805.02867; correct one title or url, {ALSO}; two works are told "
        "apart by authors, years or needs", second=True),
    "slip": Fault(
        "title: How a GPU waits", "title: Online normaliser calculation for softmax",
        ":2: the title 'Online normaliser calculation for softmax' is nearly 'Online normalizer "
        f"calculation for softmax' at {LIST}:2, for arxiv:1805.02867; correct one title or url, "
        f"{ALSO}; if they are two works, give both their authors, or let one need the other",
        second=True),
    "without subtitle": Fault(
        "title: How a GPU waits\n  url: https://example.org/waits\n  kind: post",
        "title: Roofline\n  url: https://example.org/waits\n  kind: paper",
        ":2: the title 'Roofline' is nearly 'Roofline: an insightful visual performance model' at "
        f"{LIST}:17, for doi:10.1145/1498765.1498785; correct one title or url, {ALSO}; if they "
        "are two works, give both their authors, or let one need the other", second=True),
    # References
    "unknown reading": Fault("[roofline]", "[rofline]", ":14: needs names 'rofline', which is "
                             "not the id of a reading; write roofline"),
    "unknown successor": Fault(
        "  why: Says what a warp waits for.\n",
        "  why: Says what a warp waits for.\n  superseded_by: zzz\n",
        ":6: superseded_by names 'zzz', which is not the id of a reading; correct it, or remove it",
        second=True),
    "unknown snippet": Fault(
        "  needs: [roofline]", "  snippets: [softmax]\n  needs: [roofline]",
        ":14: snippets names 'softmax', which is not a folder under snippets/; correct it, or "
        "remove it"),
    "circle": Fault("  also:\n", "  needs: [online-softmax]\n  also:\n",
                    ":23: needs goes in a circle: online-softmax -> roofline -> online-softmax; "
                    "remove 'online-softmax' here"),
}  # fmt: skip


@pytest.fixture
def two_list_trial(trial: Trial) -> Trial:
    """A project with two lists and nothing wrong."""
    for name, text in (("softmax", SHELF), ("waits", OTHER)):
        trial.add_page(f"kernels/{name}.yml", text)
        trial.add_page(f"kernels/{name}.md", f'# {name}\n\n--8<-- "readings/kernels/{name}.md"\n')
    return trial


def test_a_topic_starts_with_two_at_most(trial: Trial) -> None:
    entries = "".join(
        f"- {{id: r{n}, title: T{n}, url: https://example.org/{n}, kind: post, why: W."
        ", start: true}\n"
        for n in range(3)
    )
    trial.add_page("kernels/a.yml", entries)
    trial.add_page(
        "kernels/a.md", '# A\n\n--8<-- "start/kernels/a.md"\n\n--8<-- "readings/kernels/a.md"\n'
    )
    said = trial.run_shelf("check").stderr
    assert said.strip() == (
        "docs/kernels/a.yml:3: more than 2 readings of kernels/a have start; "
        "remove it from the others"
    )


def test_without_a_fault_all_is_well(two_list_trial: Trial) -> None:
    for words in (["check"], ["check", "--fix"]):
        done = two_list_trial.run_shelf(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, "all well\n", "")
    assert (two_list_trial.root / LIST).read_text() == SHELF


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_once_and_on_its_line(two_list_trial: Trial, name: str) -> None:
    fault = FAULTS[name]
    path = SECOND if fault.second else LIST
    text = OTHER if fault.second else SHELF
    assert text.count(fault.old) == 1
    (two_list_trial.root / path).write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    done = two_list_trial.run_shelf("check")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{path}{fault.said}\n"

    fixed = two_list_trial.run_shelf("check", "--fix")
    after = (two_list_trial.root / path).read_text(encoding="utf-8")
    if fault.fixed:
        assert fixed.returncode == 0 and fixed.stderr == ""
        place = fault.said.partition(": ")[0]
        assert fixed.stdout.startswith(f"{path}{place}: mended ")
        assert fixed.stdout.endswith("\nall well\n") and fixed.stdout.count("\n") == 2
        assert after == text.replace(fault.old, fault.after or fault.old)
        again = two_list_trial.run_shelf("check", "--fix")
        assert (again.returncode, again.stdout) == (0, "all well\n")
    else:
        assert (fixed.returncode, fixed.stdout, fixed.stderr) == (1, "", done.stderr)
        assert after == text.replace(fault.old, fault.new)


def test_both_answers_can_be_had_as_json(two_list_trial: Trial) -> None:
    text = SHELF.replace("[roofline]", "[gone]").replace("https://doi.org", "http://doi.org")
    (two_list_trial.root / LIST).write_text(text)
    left = {
        "path": LIST,
        "line": 14,
        "what": "needs names 'gone', which is not the id of a reading",
        "mend": "correct it, or remove it",
    }
    [first, second] = json.loads(two_list_trial.run_shelf("check", "--json").stdout)
    assert first == left and second["line"] == 19
    done = two_list_trial.run_shelf("check", "--fix", "--json")
    url = "doi.org/10.1145/1498765.1498785"
    what = f"url: https://{url}, which was http://{url}"
    mended = [{"path": LIST, "line": 19, "what": what}]
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout) == {"mended": mended, "findings": [left]}


TWO = """\
- id: first
  title: Matrix multiplication on a GPU
  url: https://example.org/first
  kind: post
  {first}
- id: second
  title: Matrix multiplications on GPU
  url: https://example.org/second
  kind: post
  {second}
"""
WHY = "why: Says so."


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ("authors: [Ada Lovelace]", "authors: [Bob Ross]", True),
        ("authors: [Ada Lovelace, Bob Ross]", "authors: [B. Ross]", False),
        ("authors: [Ren\u00e9 Thom]", "authors: [Rene Thom, Ada Lovelace]", False),
        ("authors: [Ada Lovelace, and others]", "authors: [Bob Ross, and others]", True),
        ("authors: [Ada Lovelace]", "authors: [Alan Lovelace]", False),
        ("authors: [Ada Lovelace]", "year: 2020", False),
        ("authors: [Ada Lovelace]\n  year: 2018", "authors: [Ada Lovelace]\n  year: 2024", False),
        ("year: 2018", "year: 2019", False),
        ("year: 2018", "year: 2020", True),
        ("year: 2018", "level: beginner", False),
    ],
)
def test_two_works_of_one_title_are_told_apart(
    trial: Trial, first: str, second: str, apart: bool
) -> None:
    def format_entry(key: str) -> str:
        return f"{WHY}\n  {key}" if key.startswith("level") else f"{key}\n  {WHY}"

    said = check_lists(trial, TWO.format(first=format_entry(first), second=format_entry(second)))
    assert said == [] if apart else "the title" in said[0] and len(said) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (WHY, f"{WHY}\n  needs: [first]"),
        (f"{WHY}\n  needs: [second]", WHY),
        (f"{WHY}\n  superseded_by: second", WHY),
        (f"{WHY}\n  also: [{{what: slides, url: https://example.org/second}}]", WHY),
        (WHY, f"{WHY}\n  also: [{{what: translation, url: https://example.org/first}}]"),
    ],
)
def test_entries_that_name_each_other_are_two_works(trial: Trial, first: str, second: str) -> None:
    assert check_lists(trial, TWO.format(first=first, second=second)) == []
    assert len(check_lists(trial, TWO.format(first=WHY, second=WHY))) == 1


def test_a_name_is_shared_by_works_of_other_kinds(trial: Trial) -> None:
    text = TWO.format(first=WHY, second=WHY)
    text = text.replace("Matrix multiplication on a GPU", "Zenflow", 1)
    text = text.replace("Matrix multiplications on GPU", '"Zenflow: Pipelines Without Stalls"')
    assert check_lists(trial, text.replace("kind: post", "kind: code", 1)) == []
    assert check_lists(trial, text.replace("kind: post", "kind: docs")) == []
    paper = text.replace("kind: post", "kind: paper")
    assert check_lists(trial, paper.replace("kind: paper", "kind: book", 1)) == []
    assert len(check_lists(trial, paper)) == 1


def test_an_entry_is_said_to_be_like_one_other(trial: Trial) -> None:
    text = TWO.format(first=WHY, second=WHY)
    third = text[text.index("- id: second") :].replace("second", "third")
    said = check_lists(trial, text + third)
    assert [line.split(":")[1] for line in said] == ["7", "12"]
    assert all("at docs/list.yml:1, " in line for line in said)


def test_another_form_of_a_work_may_stand_beside_it(trial: Trial) -> None:
    copy = "{what: annotated, url: https://www.alphaxiv.org/abs/1805.02867v2}"
    text = TWO.format(first=f"{WHY}\n  also: [{copy}]", second=f"{WHY}\n  needs: [first]")
    assert check_lists(trial, text) == []
    assert trial.run_shelf("check", "--fix").stdout == "all well\n"
    said = check_lists(trial, text.replace("annotated", "preprint"))
    assert said == [
        "docs/list.yml:6: the url is not in the usual form of arXiv; "
        "write https://arxiv.org/abs/1805.02867"
    ]


def check_lists(trial: Trial, text: str) -> list[str]:
    """What is found in a project whose one list is `text`."""
    trial.add_page("list.yml", text)
    trial.add_page("list.md", '# List\n\n--8<-- "readings/list.md"\n')
    return trial.run_shelf("check").stderr.splitlines()


MEASURE = """
import json, sys, time
from measures import read_peak, take_pace
from warpshelf.cli import commands

before = take_pace(time.process_time)
started = time.process_time()
status = commands.main(["check", *sys.argv[1:]])
took = time.process_time() - started
pace = (before + take_pace(time.process_time)) / 2
print(json.dumps({"status": status, "seconds": took, "pace": pace, "bytes": read_peak()}))
"""


@pytest.mark.exhaustive("ten thousand readings")
@pytest.mark.skipif(os.name == "nt", reason="needs the resource module")
def test_ten_thousand_readings_are_checked_in_time(trial: Trial) -> None:
    write_library(trial.root, readings=10_000, topics=200)
    lists = {path: path.read_bytes() for path in trial.root.rglob("*.yml")}
    for words in ((), ("--fix",)):
        took, said = measure_check(trial.root, *words)
        assert took["status"] == 0, said
        assert took["seconds"] < 10 * took["pace"] and took["bytes"] < 2**30, took
    assert {path: path.read_bytes() for path in lists} == lists
    known = make_titles(1)[0]
    twin = TWO.partition("- id: second")[0].format(first=WHY)
    twin = twin.replace("Matrix multiplication on a GPU", f'"{known[:4]}{known[5:]}"')
    trial.add_page("part-4/topic-199.yml", twin)
    took, said = measure_check(trial.root)
    assert took["status"] == 1 and said.startswith("docs/part-4/topic-199.yml:2: the title ")
    assert f" is nearly {known!r} at docs/part-0/topic-000.yml:1, " in said


def measure_check(root: Path, *words: str) -> tuple[dict[str, float], str]:
    """Status, processor seconds and peak bytes of `shelf check`, and what it found."""
    import measures

    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *words],
        cwd=root,
        env=measures.ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_many_circles_are_found_in_one_walk() -> None:
    names = [f"r{number}" for number in range(1000)]
    shelf = Shelf()
    for number, name in enumerate(names):
        needs = [names[(number + step) % 1000] for step in (1, *range(50, 1000, 50))]
        entry = {"id": name, "title": name, "url": f"https://x.org/{name}", "kind": "post"}
        reading = Reading.model_validate(entry | {"why": "Because.", "needs": needs})
        shelf.readings[name] = reading
    begun = process_time()
    found = list(crosscheck._check_circles(shelf))
    assert process_time() - begun < 2  # one search for each circle takes minutes
    assert len(found) > 5000 and all("needs goes in a circle: r" in one.what for one in found)
