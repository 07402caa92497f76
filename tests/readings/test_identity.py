"""One work has one name, by whichever address or title it is written down."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_titles

from warpshelf.readings import model
from warpshelf.readings.identity import (
    SECURE,
    SHORTENERS,
    canonical_url,
    strip_tracking,
    tracking_params,
    url_problems,
    work_identity,
)
from warpshelf.readings.model import FIRST_YEAR
from warpshelf.readings.titles import (
    MOST,
    NEAR,
    PART,
    SAME,
    expected_years,
    names_repository,
    parse_title,
    same_work,
    similar_pairs,
    venue_years,
)

# Addresses: a work's is written in one way, and stays the address of that work.

ONE_WORK = {
    "arxiv:2309.06180": [
        "https://arxiv.org/abs/2309.06180",
        "http://www.arxiv.org/abs/2309.06180v2",
        "https://arxiv.org/pdf/2309.06180",
        "https://arxiv.org/pdf/2309.06180v1.pdf",
        "https://arxiv.org/html/2309.06180v1#S3",
        "https://arxiv.org/html/2309.06180v1/",
        "https://export.arxiv.org/abs/2309.06180",
        "https://ar5iv.labs.arxiv.org/html/2309.06180",
        "https://www.alphaxiv.org/abs/2309.06180",
        "https://alphaxiv.org/pdf/2309.06180",
        "https://www.alphaxiv.org/overview/2309.06180v3",
        "https://huggingface.co/papers/2309.06180",
        "https://doi.org/10.48550/arXiv.2309.06180",
        "https://web.archive.org/web/20240101000000/https://arxiv.org/abs/2309.06180",
    ],
    "arxiv:cs/0112017": [
        "https://arxiv.org/abs/cs/0112017v1",
        "https://arxiv.org/pdf/cs/0112017.pdf",
        "https://arxiv.org/abs/CS/0112017",
    ],
    "arxiv:math.gt/0309136": ["https://arxiv.org/abs/math.GT/0309136"],
    "doi:10.1145/1345206.1345220": [
        "https://doi.org/10.1145/1345206.1345220",
        "http://dx.doi.org/10.1145/1345206.1345220",
        "https://dl.acm.org/doi/10.1145/1345206.1345220",
        "https://dl.acm.org/doi/abs/10.1145/1345206.1345220",
        "https://dl.acm.org/doi/pdf/10.1145/1345206.1345220?download=true",
        "https://dl.acm.org/doi/fullHtml/10.1145/1345206.1345220#sec-1",
    ],
    "doi:10.1145/33": [
        "https://arxiv.org/abs/x/doi/10.1145/33",
        "https://ieeexplore.ieee.org/doi/10.1145/33",
    ],
    "doi:10.1007/s11227-015-1483-z": [
        "https://doi.org/10.1007/S11227-015-1483-Z",
        "https://link.springer.com/article/10.1007/s11227-015-1483-z",
        "https://link.springer.com/article/10.1007%2Fs11227-015-1483-z",
        "https://link.springer.com/content/pdf/10.1007/s11227-015-1483-z.pdf",
        "https://link.springer.com/article/10.1007/s11227-015-1483-z/fulltext.html/",
    ],
    "doi:10.1007/978-3-030-50743-5_22": [
        "https://link.springer.com/chapter/10.1007/978-3-030-50743-5_22"
    ],
    "doi:10.1109/hipc.2009.5433179": ["https://doi.org/10.1109/HIPC.2009.5433179"],
    "doi:10.1002/cpe.1": ["https://onlinelibrary.wiley.com/doi/full/10.1002/cpe.1"],
    "doi:10.1038/s41586-021-03819-2": [
        "https://www.nature.com/articles/s41586-021-03819-2",
        "https://www.nature.com/articles/s41586-021-03819-2.pdf",
        "https://doi.org/10.1038/s41586-021-03819-2",
    ],
    "ieee:9622813": [
        "https://ieeexplore.ieee.org/document/9622813",
        "https://ieeexplore.ieee.org/abstract/document/9622813/",
        "https://ieeexplore.ieee.org/document/9622813/authors#authors",
        "https://ieeexplore.ieee.org/stamp/stamp.jsp?tp=&arnumber=9622813",
        "https://ieeexplore.ieee.org/doi/none?arnumber=9622813",
    ],
    "youtube:Cp7g1Ll4v0M": [
        "https://www.youtube.com/watch?v=Cp7g1Ll4v0M",
        "https://youtube.com/watch?feature=shared&v=Cp7g1Ll4v0M&t=42s",
        "https://m.youtube.com/watch?v=Cp7g1Ll4v0M",
        "https://music.youtube.com/watch?v=Cp7g1Ll4v0M",
        "https://youtu.be/Cp7g1Ll4v0M?si=AbCd_efGH",
        "https://www.youtube.com/embed/Cp7g1Ll4v0M",
        "https://www.youtube-nocookie.com/embed/Cp7g1Ll4v0M?rel=0",
        "https://www.youtube.com/shorts/Cp7g1Ll4v0M",
        "https://www.youtube.com/live/Cp7g1Ll4v0M?si=x",
        "https://www.youtube.com/v/Cp7g1Ll4v0M",
        "https://www.youtube.com/watch?v=Cp7g1Ll4v0M&list=PLabc",
    ],
    "youtube:playlist/PLabc": [
        "https://www.youtube.com/playlist?list=PLabc",
        "https://www.youtube.com/embed/videoseries?list=PLabc",
    ],
    "github:ekondis/gpu-benches": [
        "https://github.com/ekondis/gpu-benches",
        "https://github.com/Ekondis/GPU-benches.git",
        "https://www.github.com/ekondis/gpu-benches/",
        "https://github.com/ekondis/gpu-benches/tree/main",
        "https://github.com/ekondis/gpu-benches/tree/master/",
        "https://github.com/ekondis/gpu-benches?tab=readme-ov-file#readme",
        "https://github.com/ekondis/gpu-benches/blob/main/README.md",
    ],
    "github:karpathy/llm.c/dev/cuda": [
        "https://github.com/karpathy/llm.c/tree/master/dev/cuda",
        "https://github.com/karpathy/llm.c/tree/main/dev/cuda/",
    ],
    "github:karpathy/llm.c/train_gpt2.cu": [
        "https://github.com/karpathy/llm.c/blob/master/train_gpt2.cu#L10-L20",
        "https://raw.githubusercontent.com/karpathy/llm.c/master/train_gpt2.cu",
        "https://raw.githubusercontent.com/karpathy/llm.c/refs/heads/master/train_gpt2.cu",
    ],
    "github:karpathy/llm.c/@v1.0/README.md": [
        "https://github.com/karpathy/llm.c/blob/v1.0/README.md"
    ],
    "github:karpathy/llm.c/issues/12": ["https://github.com/karpathy/llm.c/issues/12"],
    "github:karpathy": ["https://github.com/karpathy"],
    "url:github.com/search?q=gpu": ["https://github.com/search?q=gpu"],
    "url:siboehm.com/articles/22/CUDA-MMM": [
        "https://siboehm.com/articles/22/CUDA-MMM",
        "http://www.SIBOEHM.com:80/articles/22/CUDA-MMM/",
        "https://siboehm.com:443/articles/22/CUDA-MMM/index.html",
        "https://siboehm.com/articles/22/CUDA-MMM?utm_source=x&fbclid=y#part-2",
        "https://siboehm.com/articles/22/CUDA%2DMMM",
        "https://web.archive.org/web/2023/http://siboehm.com/articles/22/CUDA-MMM",
        "https://web.archive.org/web/20230101id_/https:/siboehm.com/articles/22/CUDA-MMM",
    ],
    "url:example.org?a=1&b=2": [
        "https://example.org/?b=2&a=1",
        "https://example.org/?utm_medium=z&a=1&b=2",
    ],
    "url:example.org#/page/2": ["https://example.org/#/page/2", "https://example.org#/page/2/"],
    "url:example.org:8443/a": ["https://example.org:8443/a"],
    "url:xn--bcher-kva.example/a": ["https://bücher.example/a", "https://xn--bcher-kva.example/a"],
    "url:example.org/%E6%B5%81": ["https://example.org/流", "https://example.org/%e6%b5%81"],
}


@pytest.mark.parametrize(
    ("name", "url"), [(name, url) for name, urls in ONE_WORK.items() for url in urls]
)
def test_the_addresses_of_a_work_share_its_name(name: str, url: str) -> None:
    assert work_identity(url) == name


def test_different_works_have_different_names() -> None:
    different = [
        "https://arxiv.org/abs/2309.06180",
        "https://arxiv.org/abs/2309.06181",
        "https://arxiv.org/list/cs.LG/recent",
        "https://www.youtube.com/watch?v=Cp7g1Ll4v0M",
        "https://www.youtube.com/watch?v=Cp7g1Ll4v0m",
        "https://www.youtube.com/@GPUMODE",
        "https://github.com/a/b",
        "https://github.com/a/b/tree/main/c",
        "https://github.com/a/b/tree/main/C",
        "https://github.com/a/b/wiki",
        "https://gist.github.com/a/b",
        "https://example.org/A",
        "https://example.org/a",
        "https://a.example.org/a",
        "https://example.org/a?page=2",
        "https://example.org/a?page=3",
        "https://example.org/#/a",
        "https://example.org/",
        "https://docs.springer.com/",
        "https://ieeexplore.ieee.org/browse",
        "https://huggingface.co/papers",
    ]
    assert len({work_identity(url) for url in different}) == len(different)


@pytest.mark.parametrize(
    ("url", "names", "cleaned"),
    [
        ("https://youtu.be/Cp7g1Ll4v0M?si=x", ["si"], "https://youtu.be/Cp7g1Ll4v0M"),
        (
            "https://x.org/a?utm_source=a&id=5&UTM_x=&q=%20b#c",
            ["utm_source", "UTM_x"],
            "https://x.org/a?id=5&q=%20b#c",
        ),
        ("https://x.org/a?id=5&size=2", [], "https://x.org/a?id=5&size=2"),
        ("https://x.org/?", [], "https://x.org/?"),
    ],
)
def test_tracking_parameters_are_named_and_removed(
    url: str, names: list[str], cleaned: str
) -> None:
    assert tracking_params(url) == names
    assert strip_tracking(url) == cleaned
    assert work_identity(strip_tracking(url)) == work_identity(url)


@pytest.mark.parametrize(
    "url",
    ["", "arxiv.org/abs/2309.06180", "ftp://x.org", "javascript:x", "https://[::1", "https://x y",
     "https://x.org:port/", "https://" + "é" * 70 + ".org"],
)  # fmt: skip
def test_what_is_no_web_address_has_no_name(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|host|[Pp]ort"):
        work_identity(url)


@given(st.text(max_size=60), st.sampled_from(["", "https://", "https://github.com/", "https://x."]))
def test_any_text_has_a_stable_name_or_a_value_error(text: str, start: str) -> None:
    url = start + text
    try:
        name = work_identity(url)
    except ValueError:
        return
    assert work_identity(strip_tracking(url)) == name
    assert "\n" not in name and name.partition(":")[2]


FORMS = {
    "https://arxiv.org/abs/2309.06180": [
        "https://arxiv.org/abs/2309.06180v2",
        "https://arxiv.org/pdf/2309.06180",
        "https://arxiv.org/pdf/2309.06180v1.pdf#page=3",
        "https://arxiv.org/html/2309.06180v1#S3",
        "http://www.arxiv.org/abs/2309.06180",
        "https://export.arxiv.org/abs/2309.06180",
        "https://arxiv.org/abs/2309.06180/",
        "https://ar5iv.labs.arxiv.org/html/2309.06180",
        "https://www.alphaxiv.org/abs/2309.06180",
        "https://huggingface.co/papers/2309.06180",
        "https://doi.org/10.48550/arXiv.2309.06180",
        "https://arxiv.org/abs/2309.06180?utm_source=x&context=cs.LG",
    ],
    "https://arxiv.org/abs/math.GT/0309136": ["https://arxiv.org/pdf/math.GT/0309136v2"],
    "https://doi.org/10.1145/1345206.1345220": [
        "http://dx.doi.org/10.1145/1345206.1345220",
        "https://www.doi.org/10.1145/1345206.1345220",
        "http://doi.org/10.1145/1345206.1345220",
        "https://dl.acm.org/doi/10.1145/1345206.1345220",
        "https://dl.acm.org/doi/pdf/10.1145/1345206.1345220?download=true",
        "https://dl.acm.org/doi/fullHtml/10.1145/1345206.1345220#sec-1",
    ],
    "https://doi.org/10.1109/HIPC.2009.5433179": ["https://dx.doi.org/10.1109/HIPC.2009.5433179"],
    "https://doi.org/10.1007/s11227-015-1483-z": [
        "https://link.springer.com/article/10.1007%2Fs11227-015-1483-z",
        "https://link.springer.com/article/10.1007/s11227-015-1483-z?error=cookies_not_supported",
    ],
    "https://ieeexplore.ieee.org/document/9622813": [
        "https://ieeexplore.ieee.org/abstract/document/9622813/",
        "https://ieeexplore.ieee.org/stamp/stamp.jsp?tp=&arnumber=9622813",
    ],
    "https://openreview.net/forum?id=E1EHO0imOb": [
        "https://openreview.net/pdf?id=E1EHO0imOb",
        "http://openreview.net/forum?id=E1EHO0imOb&noteId=abc#review",
    ],
    "https://www.youtube.com/watch?v=Cp7g1Ll4v0M": [
        "https://youtu.be/Cp7g1Ll4v0M?si=AbCd_efGH",
        "https://youtube.com/watch?v=Cp7g1Ll4v0M&feature=shared",
        "https://m.youtube.com/watch?v=Cp7g1Ll4v0M&ab_channel=GPUMODE&pp=yg",
        "http://www.youtube.com/embed/Cp7g1Ll4v0M?rel=0",
        "https://www.youtube.com/live/Cp7g1Ll4v0M",
        "https://www.youtube.com/shorts/Cp7g1Ll4v0M",
        "https://www.youtube-nocookie.com/embed/Cp7g1Ll4v0M",
    ],
    "https://www.youtube.com/watch?v=Cp7g1Ll4v0M&t=42s": [
        "https://youtu.be/Cp7g1Ll4v0M?t=42s",
        "https://www.youtube.com/embed/Cp7g1Ll4v0M?start=42s",
    ],
    "https://www.youtube.com/watch?v=Cp7g1Ll4v0M&list=PLabc": [
        "https://youtu.be/Cp7g1Ll4v0M?list=PLabc&si=x"
    ],
    "https://www.youtube.com/playlist?list=PLabc": [
        "https://youtube.com/playlist?list=PLabc&si=x",
        "https://www.youtube.com/embed/videoseries?list=PLabc",
    ],
    "https://www.youtube.com/@GPUMODE": ["http://youtube.com/@GPUMODE"],
    "https://github.com/Ekondis/GPU-benches": [
        "https://github.com/Ekondis/GPU-benches.git",
        "http://www.github.com/Ekondis/GPU-benches/",
        "https://GitHub.com/Ekondis/GPU-benches",
        "https://github.com/Ekondis/GPU-benches/tree/main",
        "https://github.com/Ekondis/GPU-benches/tree/master/",
        "https://github.com/Ekondis/GPU-benches?tab=readme-ov-file#readme",
        "https://github.com/Ekondis/GPU-benches/blob/main/README.md",
        "https://github.com:443/Ekondis/GPU-benches",
    ],
    "https://github.com/Ekondis/GPU-benches#build": [
        "https://github.com/Ekondis/GPU-benches?tab=readme-ov-file#build"
    ],
    "https://github.com/karpathy/llm.c/tree/master/dev/cuda": [
        "https://github.com/karpathy/llm.c/tree/master/dev/cuda/"
    ],
    "https://leimao.github.io/blog/X/": ["http://leimao.github.io/blog/X/?utm_source=rss"],
    "https://x.org/a?id=5&q=%20b#c": ["https://X.org:443/a?utm_source=a&id=5&UTM_x=&q=%20b#c"],
    "https://x.org/": ["https://x.org/?"],
    "http://x.org/a": ["http://X.ORG:80/a?fbclid=1"],
}
KEPT = [
    *FORMS,
    "https://www.cs.virginia.edu/stream/",
    "https://x.org:8443/a/",
    "http://notarxiv.org/a",
    "http://arxiv.org:8080/a",
    "https://x.org/index.html",
    "https://en.wikipedia.org/wiki/Roofline_model",
    "https://github.com/a/b/tree/v2.0",
    "https://github.com/a/b/blob/main/docs/README.md",
    "https://github.com/a/b/wiki",
    "https://gist.github.com/a/b.git",
    "https://raw.githubusercontent.com/a/b/main/x.pdf",
    "https://www.youtube.com/watch?t=42s&v=Cp7g1Ll4v0M",
    "https://arxiv.org/list/cs.LG/recent",
    "https://www.nature.com/articles/s41586-021-03819-2",
    "https://onlinelibrary.wiley.com/doi/full/10.1002/cpe.1",
    "https://dl.acm.org/doi/10.1145/1345206.1345220/suppl/x.zip",
    "https://web.archive.org/web/2023id_/http://x.org/a?utm_source=b",
    "https://b\u00fccher.example/a",
]


@pytest.mark.parametrize(
    ("form", "url"), [(form, url) for form, urls in FORMS.items() for url in urls]
)
def test_an_address_is_written_in_its_usual_form(form: str, url: str) -> None:
    assert canonical_url(url) == form
    said = " ".join(mend for _, mend in url_problems(url))
    assert f"write {form}" in said or form.startswith("http:")


@pytest.mark.parametrize("url", KEPT)
def test_an_address_in_its_form_is_left_alone(url: str) -> None:
    assert canonical_url(url) == url
    assert [what for what, _ in url_problems(url) if "is http" not in what] == []


def test_the_place_within_a_page_is_kept() -> None:
    url = "https://github.com/a/b/blob/main/README.md#L3"
    assert canonical_url(url) == "https://github.com/a/b#L3"


@pytest.mark.parametrize(
    "url",
    [
        "https://arxiv.org/pdf/2309.06180v1",
        "https://www.alphaxiv.org/abs/2309.06180",
        "https://dl.acm.org/doi/pdf/10.1145/1345206.1345220",
        "https://ieeexplore.ieee.org/stamp/stamp.jsp?tp=&arnumber=9622813",
        "https://openreview.net/pdf?id=E1EHO0imOb",
    ],
)
def test_beside_the_work_another_form_of_it_may_stand(url: str) -> None:
    assert canonical_url(url, main=False) == url and not list(url_problems(url, main=False))
    assert canonical_url(url) != url


def test_beside_the_work_other_addresses_keep_their_form_too() -> None:
    for form in (
        "https://www.youtube.com/watch?v=Cp7g1Ll4v0M",
        "https://github.com/Ekondis/GPU-benches",
    ):
        for url in FORMS[form]:
            assert canonical_url(url, main=False) == form


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://arxiv.org/abs/2309.06180", "the url is http; write https://arxiv.org/abs/"),
        ("http://x.org/a", "the url http://x.org/a is http; write https://x.org/a; a site without"),
        ("https://x.org/?gclid=1&fbclid=2", "the url carries gclid, fbclid, which follow the"),
        ("http://youtu.be/Cp7g1Ll4v0M?si=x", "the url is http, and carries si, which follows the "
         "reader, and is not in the usual form of YouTube; write https://www.youtube.com/wa"),
        ("https://EXAMPLE.org/a", "the url is not in the usual form of an address; write"),
        ("https://tinyurl.com/x", "tinyurl.com hides where the url leads; open it"),
        ("https://www.bit.ly/x", "bit.ly hides"),
        ("https://openreview.net/search?term=gpu", "the url is a search on openreview.net"),
        ("https://dl.acm.org/action/doSearch?AllField=gpu", "the url is a search on dl.acm.org"),
        ("https://huggingface.co/models?search=llama", "the url is a search on huggingface.co"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_once_with_its_mend(url: str, said: str) -> None:
    [(what, mend)] = url_problems(url)
    assert f"{what}; {mend}".startswith(said)


def test_what_is_no_search_is_left_alone() -> None:
    for url in ("https://huggingface.co/models", "https://huggingface.co/blog?search=x",
                "https://x.com/search-engines"):  # fmt: skip
        assert list(url_problems(url)) == []


def test_known_hosts_are_names_without_a_part_too_many() -> None:
    assert not [host for host in {*SECURE, *SHORTENERS} if host != host.lower().strip(".")]
    assert not SECURE & SHORTENERS


def test_what_is_no_address_has_no_form() -> None:
    with pytest.raises(ValueError, match="does not start with https"):
        canonical_url("arxiv.org/abs/2309.06180")


PIECES = ["arxiv.org", "www.", "doi.org", "github.com", "youtu.be", "youtube.com", "x.org", "/abs/",
          "/pdf/", "2309.06180", "v2", ".pdf", "/10.1145/1.2", "/a", "/b", ".git", "/tree/main",
          "/", "/blob/main/README.md", "?", "v=Cp7g1Ll4v0M", "/Cp7g1Ll4v0M", "&", "si=x",
          "utm_source=y", "t=4", "list=PL", "#", "readme", "%2F", ":80", ":443", "web.archive.org/web/2020/http://",
          "openreview.net/pdf?id=X", "=", ";", "+", "/watch", "/embed", "dx."]  # fmt: skip
URLS = st.builds(
    str.__add__,
    st.sampled_from(["https://", "http://", "HTTP://"]),
    st.one_of(
        st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map("".join), st.text(max_size=40)
    ),
)


@given(URLS, st.booleans())
def test_a_form_is_of_the_same_work_and_final(url: str, main: bool) -> None:
    try:
        name = work_identity(url)
    except ValueError:
        return
    form = canonical_url(url, main)
    assert work_identity(form) == name
    assert canonical_url(form, main) == form
    said = [mend for _, mend in url_problems(url, main) if mend == f"write {form}"]
    assert len(said) == (form != url)


# Titles of one work are found alike; titles of a series, of versions and of opposites are not.
# The year that a venue or an arXiv number tells.


def compare_titles(a: str, b: str, headed: int = 0) -> str | None:
    """How two titles are alike, whichever stands first."""
    one, other = parse_title(a, headed), parse_title(b, headed)
    found = [[pair[2] for pair in similar_pairs(both)] for both in ((one, other), (other, one))]
    assert found[0] == found[1] and len(found[0]) < 2
    return found[0][0] if found[0] else None


FLASH = "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness"
RING = "Ring Attention with Blockwise Transformers for Near-Infinite Context"
ALIKE = [
    ("Flash, Attention!", "flash attention", SAME),
    ("FlashAttention", "Flash-Attention", SAME),
    ("The Roofline Model", "Roofline models", SAME),
    ("An Analysis of GPU Kernels", "Analysis of GPU kernel", SAME),
    ("Don\u2019t Repeat Memory Accesses", "Dont repeat memory access", SAME),
    ("Multi-Head Attention", "Multihead Attention", SAME),
    ("PyTorch\u6e90\u7801\u89e3\u6790\uff081\uff09- \u6574\u4f53\u9884\u89c8",
     "PyTorch \u6e90\u7801\u89e3\u6790(1)\uff1a\u6574\u4f53\u9884\u89c8", SAME),
    ("\uff30\uff59\uff34\uff4f\uff52\uff43\uff48 internals", "PyTorch Internals", SAME),
    ("Tensor cores\u00a0explained", "Tensor Cores  Explained", SAME),
    ("Online normalizer for softmax", "Online normaliser for softmax", NEAR),
    ("Online calculation of softmax", "Online calcluation of softmax", NEAR),
    ("Batches and caches", "Batch and cache", SAME),
    ("Libraries of kernels", "A library of kernels", SAME),
    ("Online softmax", "Online softmx", NEAR),
    ("Efficient Memory Management", "Efficent Memory Management", NEAR),
    ("PipeDream: Generalized Pipelines", "PipeDreams: Generalised pipelines", NEAR),
    (RING, RING + " Length", NEAR),
]  # fmt: skip
UNLIKE = [
    ("FlashAttention-2", "FlashAttention-3"),
    ("FlashAttention", "FlashAttention-2"),
    ("Llama 2", "Llama 3"),
    ("Llama 3", "Llama 3.1"),
    ("DeepSeek-V2 Technical Report", "DeepSeek-V3 Technical Report"),
    ("CUDA by example, part I", "CUDA by example, part II"),
    ("CUDA by example, part II", "CUDA by example, part III"),
    ("CUDA by example, part 1", "CUDA by example, part 2"),
    ("Understanding warps (1)", "Understanding warps (2)"),
    ("Understanding warps", "Understanding warps (2)"),
    ("Understanding warps, part A", "Understanding warps, part B"),
    ("Understanding warps, part one", "Understanding warps, part two"),
    ("\u6df1\u5165 CUDA\uff08\u4e0a\uff09", "\u6df1\u5165 CUDA\uff08\u4e0b\uff09"),
    ("\u6df1\u5165 CUDA\uff08\u4e00\uff09", "\u6df1\u5165 CUDA\uff08\u4e8c\uff09"),
    ("PyTorch\u6e90\u7801\uff081\uff09", "PyTorch\u6e90\u7801\uff082\uff09"),
    ("CS149 2023 lectures", "CS149 2024 lectures"),
    ("Training in FP8", "Training in FP16"),
    ("A 2D decomposition", "A 2.5D decomposition"),
    ("How to optimize a GEMM", "How to optimize a GEMV"),
    ("CUDA C Programming Guide", "CUDA C++ Programming Guide"),
    ("Symmetric memory", "Asymmetric memory"),
    ("Structured sparsity", "Unstructured sparsity"),
    ("Synchronous pipelines", "Asynchronous pipelines"),
    ("The encoder", "The decoder"),
    ("Efficient training of models", "Efficient inference of models"),
    ("Efficient training of models", "Efficient distributed training of models"),
    (RING, RING + " Revisited"),
    (RING, RING + " 2"),
    (RING, RING + " XLA"),
    ("The batch sizes", "The patch sizes"),
    ("Attention", "Retention"),
    ("Pipelines: an overview", "Tensors: an overview"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "wanted"), ALIKE)
def test_titles_of_one_work_are_alike(a: str, b: str, wanted: str) -> None:
    assert compare_titles(a, b) == wanted


@pytest.mark.parametrize(("a", "b"), UNLIKE)
def test_titles_of_two_works_are_not(a: str, b: str) -> None:
    assert compare_titles(a, b) is compare_titles(a, b, 1) is None


@pytest.mark.parametrize(
    ("a", "b", "headed", "wanted"),
    [
        ("FlashAttention", FLASH, 1, PART),
        ("FlashAttention", FLASH, 0, None),
        (FLASH.partition(": ")[2], FLASH, 1, NEAR),
        ("Exact Attention with IO-Awareness", "Flash: Exact Attention with IO-Awareness", 1, PART),
        ("GPipe", "GPipe - Easy Scaling with Micro-Batch Pipelines", 1, PART),
        ("\u6d41\u6c34\u7ebf\u5e76", "\u6d41\u6c34\u7ebf\u5e76\uff1a\u539f\u7406", 1, PART),
        ("Profiling kernels", "Profiling kernels: what to look at", 3, None),
        ("Profiling CUDA kernels", "Profiling CUDA kernels: what to look at", 3, PART),
        ("Profiling CUDA kernels", "Profiling CUDA kernels: part two", 1, None),
        ("Profiling CUDA kernels", "Profiling CUDA kernels: 2", 1, None),
        ("Profiling CUDA kernels", "Profiling CUDA kernels: II", 1, None),
        ("Zero Bubble Pipeline Schedules", "Session 6: Zero Bubble Pipeline Schedules", 1, None),
        ("FlashAttention-2", "FlashAttention-2: Faster Attention", 1, PART),
        ("Megatron: Training", "Megatron: Inference", 1, None),
        ("A", "A: a letter", 1, None),
        ("Overview", "Tensors: overview", 1, None),
    ],
)  # fmt: skip
def test_a_subtitle_may_be_left_away(a: str, b: str, headed: int, wanted: str | None) -> None:
    assert compare_titles(a, b, headed) == wanted


def test_titles_without_words_are_compared_as_they_are() -> None:
    assert compare_titles("\u2026", "\u2026") == SAME
    assert compare_titles("\u2026", "\u00b7") is None
    assert compare_titles("On the", "Of the") is None
    assert compare_titles("", "!") is None


# Without the letters that a plural ends in.
WORDS = st.text("abcdfghjklmnopqrtvwxz", min_size=8, max_size=14)


@given(st.lists(WORDS, min_size=1, max_size=6, unique=True), st.data())
def test_one_slip_in_a_long_word_is_found(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    place = data.draw(st.integers(0, len(words) - 1))
    word = words[place]
    at = data.draw(st.integers(1, len(word) - 2))
    slip = data.draw(st.sampled_from([
        word[:at] + word[at + 1 :],
        word[:at] + "q" + word[at:],
        word[:at] + "q" + word[at + 1 :],
        word[:at] + word[at + 1] + word[at] + word[at + 2 :],
    ]))  # fmt: skip
    if max(word, slip, key=len).endswith(min(word, slip, key=len)):
        return  # a letter before the word may be a prefix
    wrong = " ".join([*words[:place], slip, *words[place + 1 :]])
    assert compare_titles(text, wrong) in (SAME, NEAR)
    assert compare_titles(text, f"{wrong} 2") is None


@given(st.lists(st.text(max_size=30), max_size=8))
def test_any_texts_are_compared(texts: list[str]) -> None:
    found = list(similar_pairs([parse_title(text, 1) for text in texts]))
    assert all(first < second < len(texts) for first, second, _ in found)
    assert {(a, b) for b in range(len(texts)) for a in range(b) if texts[a] == texts[b]} <= {
        (first, second) for first, second, _ in found
    }


def invent_titles(kind: str) -> list[str]:
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(10_000)]
    return {
        "as they are": make_titles(10_000),
        "one frame": [f"Understanding the {word} kernels of Hopper" for word in words],
        "one prefix": [f"Understanding: {word}" for word in words],
        "long": [f"{word} " * 2 + "one two three four five six seven eight" for word in words],
        "numbers": [f"Understanding warps, part {number}" for number in range(10_000)],
        "one title": ["Understanding warps"] * 10_000,
        "one head": ["Understanding warps"] * 5000 + ["Understanding warps: more"] * 5000,
    }[kind]


@pytest.mark.parametrize(
    ("kind", "most"),
    [("as they are", 0), ("one frame", 20), ("one prefix", 20), ("long", 20), ("numbers", 0),
     ("one title", 10_000 * MOST), ("one head", 15_000 * MOST)],
)  # fmt: skip
def test_ten_thousand_titles_are_compared_in_time(kind: str, most: int) -> None:
    texts = invent_titles(kind)
    start = time.process_time()
    found = sum(1 for _ in similar_pairs([parse_title(text, 1) for text in texts]))
    assert time.process_time() - start < 10
    assert found <= most


# A title that the web gives.

PAGED = "Efficient Memory Management for Large Language Model Serving with PagedAttention"
R1 = "DeepSeek-R1: Incentivizing Reasoning Capability in LLMs via Reinforcement Learning"


@pytest.mark.parametrize(
    ("ours", "there"),
    [
        (PAGED, PAGED),
        (PAGED, PAGED.upper()),
        (PAGED, PAGED.replace("PagedAttention", "Paged Attention") + "."),
        ("GPipe", "GPipe: Efficient Training of Giant Neural Networks"),
        ("GPipe: Efficient Training of Giant Neural Networks", "GPipe"),
        ("FlashAttention-2", "FlashAttention-2: Faster Attention with Better Parallelism"),
        ("3.5-D Blocking Optimization for Stencils", "3.5-D blocking optimization for stencils"),
        ("Modeling on μ-architectures", "Modeling on $\\mu$-architectures"),
        ("Reduction in O(n) time", "Reduction in <i>O</i>(<i>n</i>) time"),
        ("Kernels & tiles", "Kernels &amp; tiles"),
        ("Schrödinger's tile", "Schrodinger\u2019s Tile"),
        ("ZeRO: Memory Optimizations", "ZeRO - memory optimizations"),
    ],
)
def test_one_work_written_in_two_ways(ours: str, there: str) -> None:
    assert same_work([ours], there)


@pytest.mark.parametrize(
    ("ours", "there"),
    [
        (PAGED, R1),  # what a reading group's notes had as the paper
        ("DeepSeek-V3 Technical Report", "DeepSeek-V2 Technical Report"),
        ("FlashAttention: Fast and Exact", "FlashAttention-2: Faster Attention"),
        ("FlashAttention", "FlashAttention-2: Faster Attention"),
        ("Attention Is All You Need", "Attention Is Not All You Need: Pure Attention Loses Rank"),
        (
            "MonoNN",
            "Aceso: Efficient Parallel DNN Training through Iterative Bottleneck Alleviation",
        ),
        ("Zero Bubble Pipeline Parallelism", "Pipeline Parallelism with Controllable Memory"),
    ],
)
def test_two_works(ours: str, there: str) -> None:
    assert not same_work([ours], there)


def test_the_english_title_counts_as_well() -> None:
    assert same_work(["流水线并行", "Pipeline parallelism"], "Pipeline Parallelism")
    assert not same_work(["流水线并行"], "Pipeline Parallelism")


def test_a_publication_may_be_worded_otherwise() -> None:
    ours = "PipeDream: Fast and Efficient Pipeline Parallel DNN Training"
    there = "PipeDream: generalized pipeline parallelism for DNN training"
    assert same_work([ours], there, version=True) and not same_work([ours], there)
    assert not same_work([PAGED], R1, version=True)


@pytest.mark.parametrize(
    ("ours", "repository", "says", "right"),
    [
        ("llama.cpp", "ggml-org/llama.cpp", "LLM inference in C/C++", True),
        ("CUDA Softmax", "Fattorib/CudaSoftmax", "", True),
        ("EleutherAI ML Scalability & Performance Reading Group",
         "danielvegamyhre/ml-perf-reading-group", "Notes of the EleutherAI ML Performance reading"
         " group", True),
        ("Annotated PyTorch source", "keithyin/read-pytorch-source-code", "", False),
        ("Annotated PyTorch source", "keithyin/read-pytorch-source-code",
         "pytorch source code, annotated", True),
        ("vLLM", "sgl-project/sglang", "A serving framework for large language models", False),
        ("FlashMLA", "deepseek-ai/DeepEP", "An expert-parallel communication library", False),
    ],
)  # fmt: skip
def test_repositories(ours: str, repository: str, says: str, right: bool) -> None:
    assert names_repository([ours], repository, says) is right


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_titles_can_be_compared(one: str, other: str) -> None:
    assert same_work([one], one)
    assert names_repository([one], other, one) in (True, False)
    for version in (True, False):
        assert same_work([one], other, version=version) in (True, False)


NEXT = datetime.now(UTC).year + 1
PREPRINT = "https://arxiv.org/abs/2307.08691"


@pytest.mark.parametrize(
    ("venue", "years"),
    [
        ("ICLR 2024", [2024]),
        ("CVPR2016", [2016]),
        ("Neurocomputing 568 (2024)", [2024]),
        ("NVIDIA Technical Report NVR-2016-002", [2016]),
        ("SC'11", [2011]),
        ("SC\u201911", [2011]),
        ("ISCA '99", [1999]),
        ("GTC 2021, session S31151", [2021]),
        ("GTC 2021, held again in 2022", [2021, 2022]),
        ("SOSP 2023, a paper of SOSP 2023", [2023]),
        ("session S2025", []),
        ("Computing 102, pages 1989-2005", []),
        ("Journal 14(4)", []),
        ("arXiv", []),
        (f"ICLR {NEXT}", [NEXT]),
        (f"ICLR {NEXT + 1}", []),
        ("Part 120245", []),
        ("", []),
    ],
)
def test_a_venue_names_its_years(venue: str, years: list[int]) -> None:
    assert venue_years(venue) == years


@pytest.mark.parametrize(
    ("url", "venue", "years"),
    [
        (PREPRINT, "ICLR 2024", [2024]),
        (PREPRINT, "arXiv", [2023]),
        (PREPRINT, "ARXIV ", [2023]),
        (PREPRINT, None, None),  # where it appeared is not said, so neither is its year
        (PREPRINT, "Journal of Machine Learning Research", None),
        ("https://arxiv.org/abs/math/0309136", "arXiv", [2003]),
        ("https://arxiv.org/abs/hep-th/9901001", "arXiv", [1999]),
        ("https://doi.org/10.48550/arXiv.2307.08691", "arXiv", [2023]),
        ("https://example.org/2019/a", "arXiv", None),
        ("https://example.org/2019/a", "PPoPP 2020", [2020]),
    ],
)
def test_who_says_which_year(url: str, venue: str | None, years: list[int] | None) -> None:
    told = expected_years(url, venue)
    assert (told and told[0]) == years


def test_an_address_that_is_none_is_said_to_be() -> None:
    with pytest.raises(ValueError, match="does not start with"):
        expected_years("example.org", "arXiv")


@given(st.text(max_size=80))
def test_any_venue_can_be_asked(venue: str) -> None:
    found = venue_years(venue)
    assert len(found) == len(set(found)) and all(FIRST_YEAR <= year <= NEXT for year in found)


@given(st.integers(FIRST_YEAR, NEXT), st.from_regex(r"[A-Z]{2,8}", fullmatch=True))
def test_a_conference_and_its_year_name_it(year: int, conference: str) -> None:
    assert venue_years(f"{conference} {year}") == venue_years(f"{conference}{year}") == [year]


def test_next_year_moves_on_while_a_server_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime(2059, 1, 1, tzinfo=UTC)

    monkeypatch.setattr(model, "datetime", Later)
    assert model._check_year(2060) == 2060
    assert venue_years("ICLR 2060, ICLR 2061") == [2060]
    with pytest.raises(ValueError, match="outside 1950 to 2060"):
        model._check_year(2061)
