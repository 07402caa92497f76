"""One work has one name, whichever of its addresses is written down.

A work's address is written in one way, and stays the address of that work.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.readings.identity import (
    SECURE,
    SHORTENERS,
    canonical_url,
    strip_tracking,
    tracking_params,
    url_problems,
    work_identity,
)

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
