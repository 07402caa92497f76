"""`shelf rivals`: from a clone to figures that are kept, and what `shelf check` says of them."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Trial, sound_snippet
from made_up_views import make_view

from warpshelf.bench import compiling
from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core import files, project
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.look import builds, view_store
from warpshelf.look.view import View
from warpshelf.readings.model import Shelf
from warpshelf.render.snippet_page import RivalComparison
from warpshelf.site import project_content

pytest.importorskip("triton")

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def scale(y, x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)
"""
RIVALS = "rivals:\n"
ENTRY = """\
- name: A library
  repository: owner/library
  commit: {commit}
  file: ops/scale.py
  kernel: scale
  beside: {{variant: naive, kernel: transpose_naive}}
  what: float32
  signature: {{y: "*fp32", x: "*fp32"}}
  constants: {{BLOCK: 128}}
  targets: [90]
"""


def call_git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def rival_clones(tmp_path: Path) -> Path:
    folder = tmp_path / "clones" / "owner" / "library"
    (folder / "ops").mkdir(parents=True)
    (folder / "ops" / "scale.py").write_text(KERNEL)
    call_git(folder, "init", "--quiet")
    call_git(folder, "add", ".")
    call_git(folder, "commit", "--quiet", "--message", "first")
    return tmp_path / "clones"


@pytest.fixture
def rivalled_snippet(trial: Trial, rival_clones: Path) -> Snippet:
    """A snippet with a view of its naive kernel, whose published.yml names the clone's kernel."""
    folder = trial.add_snippet("transpose", sound_snippet()).parent
    commit = call_git(rival_clones / "owner" / "library", "rev-parse", "HEAD")
    (folder / "published.yml").write_text(RIVALS + ENTRY.format(commit=commit))
    one = snippet.read_snippet(Project(trial.root), folder)
    view_store.write_views(one, [make_view("naive") | {"compiler": name_compiler()}])
    return one


def name_compiler() -> str:
    import triton

    return f"Triton {triton.__version__}"


def list_rival_findings(one: Snippet) -> list[str]:
    return [str(finding) for finding in project_content.check_published(one, Shelf())]


def pair_rivals(one: Snippet, kept: View) -> tuple[list[RivalComparison], list[Finding]]:
    known = project_content.load_published(one)[0].rivals
    return project_content.pair_rivals(one, known, [kept])


def edit_rivals(one: Snippet, old: str, new: str) -> None:
    path = one.folder / "published.yml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.exhaustive("public kernels, compiled by their own means")
def test_a_kernel_is_compiled_kept_and_current(
    trial: Trial, rivalled_snippet: Snippet, rival_clones: Path
) -> None:
    (told,) = list_rival_findings(rivalled_snippet)
    assert "published.yml:2: scale has no build that matches its entry; run `shelf rivals" in told
    words = ("rivals", "transpose", "--checkouts", str(rival_clones))
    done = trial.run_shelf(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("wrote snippets/builds.xz\n")
    assert trial.run_shelf(*words).stdout.endswith("nothing changed in snippets/builds.xz\n")
    assert list_rival_findings(rivalled_snippet) == []
    kept_view = view_store.load_summaries(rivalled_snippet)[0][0]
    ((pair,), findings) = pair_rivals(rivalled_snippet, kept_view)
    assert findings == [] and pair.archs == ["sm_90"] and pair.answer.compiler == name_compiler()
    assert pair.answer.builds["sm_90"]["loop"] == {}
    assert pair.answer.builds["sm_90"]["bytes"] == 8  # one load and one store of 4 bytes a lane
    # It is none of what a record is bound to.
    assert (
        snippet.read_snippet(rivalled_snippet.project, rivalled_snippet.folder).digest
        == rivalled_snippet.digest
    )

    edit_rivals(rivalled_snippet, "BLOCK: 128", "BLOCK: 256")
    stale = list_rival_findings(rivalled_snippet)
    assert len(stale) == 2 and "has no build that matches its entry" in stale[0]
    assert "snippets/builds.xz: holds builds that no entry of transpose names: 1" in stale[1]
    assert pair_rivals(rivalled_snippet, kept_view)[0] == []
    edit_rivals(rivalled_snippet, "BLOCK: 256", "BLOCK: 128")
    edit_rivals(rivalled_snippet, "transpose_naive", "transpose_tiled")
    (told,) = list_rival_findings(rivalled_snippet)
    assert "naive: transpose_tiled, which has no view; name one of naive: transpose_naive" in told
    edit_rivals(rivalled_snippet, "transpose_tiled", "transpose_naive")
    path = rivalled_snippet.project.root / builds.FILE
    text = json.dumps(files.unpack_json(path.read_bytes())).replace(name_compiler(), "Triton 2.0")
    path.write_bytes(files.pack_json(json.loads(text)))
    assert (
        f"scale is compiled by Triton 2.0, ours by {name_compiler()}"
        in list_rival_findings(rivalled_snippet)[0]
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("owner/library", "owner/other", "has no clone of owner/other"),
        ("ops/scale.py", "ops/other.py", "has no ops/other.py"),
        ("commit: ", "commit: 0123456789", "commit"),
        ("kernel: scale", "kernel: none", "has no kernel none"),
    ],
)
def test_what_cannot_be_compiled_is_told_and_nothing_is_lost(
    trial: Trial, rivalled_snippet: Snippet, rival_clones: Path, old: str, new: str, says: str
) -> None:
    before = {"sha256:" + "0" * 64: builds.CompiledRival("Triton 1", {})}
    builds.write_rivals(rivalled_snippet, before)
    edit_rivals(rivalled_snippet, old, new)
    done = trial.run_shelf("rivals", "transpose", "--checkouts", str(rival_clones))
    assert done.returncode == 1
    (told,) = done.stderr.splitlines()
    assert told.startswith("snippets/transpose/published.yml:") and says in told
    assert builds.load_rivals(rivalled_snippet)[0] == before


def test_a_commit_that_is_not_there_and_a_snippet_without_entries(
    trial: Trial, rivalled_snippet: Snippet, rival_clones: Path
) -> None:
    path = rivalled_snippet.folder / "published.yml"
    path.write_text(RIVALS + ENTRY.format(commit="0" * 40))
    done = trial.run_shelf("rivals", "transpose", "--checkouts", str(rival_clones))
    assert done.returncode == 1 and "has no commit 0000" in done.stderr
    path.unlink()
    done = trial.run_shelf("rivals", "transpose", "--checkouts", str(rival_clones))
    assert done.returncode == 1
    assert "published.yml: is missing; list below `rivals:` the public" in done.stderr


def test_more_names_than_a_command_takes_cost_their_entry_alone(
    trial: Trial, rivalled_snippet: Snippet, rival_clones: Path
) -> None:
    library = rival_clones / "owner" / "library"
    blob = call_git(library, "rev-parse", "HEAD:ops/scale.py")
    lines = [f"100644 {blob}\tops/{'x' * 200}_{number}.py\n" for number in range(40_000)]
    command = ["git", "-C", str(library), "update-index", "--index-info"]
    subprocess.run(command, input="".join(lines), check=True, text=True)
    call_git(library, "commit", "--quiet", "--message", "many")
    path = rivalled_snippet.folder / "published.yml"
    large = ENTRY.format(commit=call_git(library, "rev-parse", "HEAD"))
    missing = ENTRY.format(commit="f" * 40)
    path.write_text(RIVALS + large + missing)
    done = trial.run_shelf("rivals", "transpose", "--checkouts", str(rival_clones))
    many, none = done.stderr.splitlines()
    assert done.returncode == 1 and "Git did not unpack 40001 files of commit" in many
    assert "has no commit ffff" in none


def test_a_clone_is_no_folder_inside_of_one(tmp_path: Path, rival_clones: Path) -> None:
    library = rival_clones / "owner" / "library"
    commit = call_git(library, "rev-parse", "HEAD")
    bare = tmp_path / "bare" / "library"
    call_git(library, "clone", "--quiet", "--bare", str(library), str(bare))
    tree = tmp_path / "trees" / "library"
    call_git(library, "worktree", "add", "--quiet", "--detach", str(tree))
    for checkouts in (
        rival_clones,
        bare.parent,
        tree.parent,
    ):  # a checkout, bare, and a further tree
        wanted = (checkouts, "owner/library", commit, "ops/scale.py")
        with compiling.extract_clone(*wanted) as root:
            assert (root / "ops" / "scale.py").read_text() == KERNEL
    for place in (library, library / ".git", bare):
        (place / "owner" / "library").mkdir(parents=True)
        with pytest.raises(ValueError, match="has no clone of owner/library"), ExitStack() as stack:
            stack.enter_context(compiling.extract_clone(place, *wanted[1:]))


def test_git_that_did_not_answer_is_not_a_commit_that_is_not_there(
    rival_clones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = call_git(rival_clones / "owner" / "library", "rev-parse", "HEAD")
    run_git = project.run_git

    def time_out(root: Path, *words: str) -> bytes | None:
        return None if words[0] == "ls-tree" else run_git(root, *words)

    monkeypatch.setattr(project, "run_git", time_out)
    wanted = (rival_clones, "owner/library", commit, "ops/scale.py")
    says = "library: Git did not list the files of commit"
    with pytest.raises(ValueError, match=says), ExitStack() as stack:
        stack.enter_context(compiling.extract_clone(*wanted))


OWN = """\
- name: A language
  package: {package}
  file: in_own.py
  kernel: scale
  beside: {{variant: naive, kernel: transpose_naive}}
  what: float32
  targets: [90]
"""
BINARY = """

def binary(arch):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(fn=scale, signature={"y": "*fp32", "x": "*fp32", "BLOCK": "constexpr"},
                       constexprs={(2,): 128})
    made = triton.compile(source, target=GPUTarget("cuda", int(arch[3:]), 32))
    return made.asm["cubin"], "scale", 0
"""


def test_a_language_of_its_own_needs_no_clone(trial: Trial, rivalled_snippet: Snippet) -> None:
    done = trial.run_shelf("rivals", "transpose")
    assert done.returncode == 1 and "needs a folder of clones; name one with" in done.stderr
    path = rivalled_snippet.folder / "published.yml"
    path.write_text(RIVALS + OWN.format(package="triton"))
    (rivalled_snippet.folder / "in_own.py").write_text(KERNEL + BINARY)
    done = trial.run_shelf("rivals", "transpose")
    assert (done.returncode, done.stderr) == (0, "")
    assert "compiling scale of triton" in done.stdout
    assert list_rival_findings(rivalled_snippet) == []
    kept_view = view_store.load_summaries(rivalled_snippet)[0][0]
    ((pair,), _) = pair_rivals(rivalled_snippet, kept_view)
    assert pair.answer.compiler.startswith("triton 3.")
    assert pair.answer.builds["sm_90"]["bytes"] == 8
    (rivalled_snippet.folder / "in_own.py").write_text(KERNEL + BINARY + "# changed\n")
    assert any(
        one.endswith("has no build that matches its entry; run `shelf rivals transpose`")
        for one in list_rival_findings(rivalled_snippet)
    )
    path.write_text(RIVALS + OWN.format(package="no-such-language"))
    done = trial.run_shelf("rivals", "transpose")
    (told,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert told.startswith("snippets/transpose/published.yml:2: scale: Pac")
    assert told.endswith("fix in_own.py, or pip install no-such-language")


BUILD = {
    "registers": 24,
    "spilled_bytes": 0,
    "shared_bytes": 0,
    "instructions": 9,
    "loop": {},
    "products": 0,
    "bytes": 8,
}


def pack_text(text: str) -> bytes:
    """JSON as the file holds it."""
    return files.pack_json(json.loads(text))


@pytest.mark.parametrize(
    ("change_to", "says"),
    [
        (lambda value: b"[", "is cut off"),
        (lambda value: pack_text(json.dumps(value | {"schema": 1})), "has schema 1"),
        (lambda value: pack_text(json.dumps(value | {"more": 1})), "unknown key 'more'"),
        (lambda value: pack_text(json.dumps(value).replace("sm_90", "sm90")), "is not an archit"),
        (lambda value: pack_text(json.dumps(value).replace("24", '"x"')), "registers"),
        (lambda value: b" " * 2**23, "is larger than"),
    ],
)
def test_a_file_that_is_broken_is_told(rivalled_snippet: Snippet, change_to, says: str) -> None:
    answers = {"sha256:" + "0" * 64: builds.CompiledRival("Triton 1", {"sm_90": BUILD})}
    builds.write_rivals(rivalled_snippet, answers)
    path = rivalled_snippet.project.root / builds.FILE
    path.write_bytes(change_to(files.unpack_json(path.read_bytes())))
    found, (finding,) = builds.load_rivals(rivalled_snippet)
    assert found == {}
    assert finding.path == "snippets/builds.xz" and says in finding.what
    with pytest.raises(ShelfError, match="restore it"):  # those of others would be lost
        builds.write_rivals(rivalled_snippet, answers)


def test_each_snippet_has_its_part_of_the_file(rivalled_snippet: Snippet) -> None:
    project = rivalled_snippet.project
    other = replace(rivalled_snippet, id="a_copy")
    rows = {"sha256:" + digit * 64: builds.CompiledRival("Triton 1", {"sm_90": BUILD})
            for digit in "10"}  # fmt: skip
    assert builds.write_rivals(rivalled_snippet, rows)
    assert builds.write_rivals(other, rows) and not builds.write_rivals(rivalled_snippet, rows)
    for one in (rivalled_snippet, other):
        assert list(builds.load_rivals(one)[0]) == list(rows)
    [told] = builds.check_file(project, {"transpose"})
    assert str(told) == f"{builds.FILE}: 'a_copy' is not a snippet; remove its lines"
    (rivalled_snippet.folder / "published.yml").unlink()
    [line] = list_rival_findings(rivalled_snippet)
    assert line.endswith("holds builds that no entry of transpose names: 2; remove its lines")
