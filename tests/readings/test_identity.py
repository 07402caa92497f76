"""One work has one name, whichever of its addresses is written down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.readings.identity import clean, identity, tracking

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
    assert identity(url) == name


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
    assert len({identity(url) for url in different}) == len(different)


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
    assert tracking(url) == names
    assert clean(url) == cleaned
    assert identity(clean(url)) == identity(url)


@pytest.mark.parametrize(
    "url",
    ["", "arxiv.org/abs/2309.06180", "ftp://x.org", "javascript:x", "https://[::1", "https://x y",
     "https://x.org:port/", "https://" + "é" * 70 + ".org"],
)  # fmt: skip
def test_what_is_no_web_address_has_no_name(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|host|[Pp]ort"):
        identity(url)


@given(st.text(max_size=60), st.sampled_from(["", "https://", "https://github.com/", "https://x."]))
def test_any_text_has_a_stable_name_or_a_value_error(text: str, start: str) -> None:
    url = start + text
    try:
        name = identity(url)
    except ValueError:
        return
    assert identity(clean(url)) == name
    assert "\n" not in name and name.partition(":")[2]
