"""Measures a GPU on Modal and brings one file home. From a checkout, with Modal set up:

    modal run -w records.json scripts/recipes/modal_app.py --gpu L4 --budget 1200

`-w` names the file, which docs/about/measure.md says how to hand in.
"""

import subprocess
from pathlib import Path

import modal

HERE = Path(__file__).resolve().parent
THERE = "/warpshelf"
CHECKOUT = HERE.parents[1] if modal.is_local() else Path(THERE)
UNTRACKED = [".venv", ".shelf", "build", "site", "out", "**/__pycache__"]

app = modal.App("warpshelf")
image = (
    modal.Image.debian_slim(python_version="3.12")
    .apt_install("g++", "git")  # Triton calls a compiler, and a record names a commit
    .pip_install_from_requirements(str(HERE / "requirements.txt"))
    .add_local_dir(CHECKOUT, THERE, ignore=UNTRACKED)
)


@app.function(image=image, gpu="L4", cpu=8, memory=16384)
def measure(budget: float, ids: str) -> bytes:
    """The file of a run: `ids` are snippets, separated by spaces, or none for all."""
    run = ["python", "scripts/build.py", "run", "--out", "records.json"]
    words = [*run, "--budget", str(budget), *ids.split()]
    subprocess.run(words, cwd=CHECKOUT, check=False)
    return (CHECKOUT / "records.json").read_bytes()


@app.local_entrypoint()
def main(gpu: str = "L4", budget: float = 1200, ids: str = "") -> bytes:
    chosen = measure.with_options(gpu=gpu, timeout=int(budget) + 900)
    return chosen.remote(budget, ids)
