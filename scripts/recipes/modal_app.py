"""Measures a GPU on Modal and brings one file home. From a checkout, with Modal set up:

    modal run -w records.json scripts/recipes/modal_app.py --gpu L4 --budget 1200

`-w` names the file; a T4, A100, H100 or B200 will do as well. Then hand it in: docs/about/measure.md.
"""

import subprocess
from pathlib import Path

import modal

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1] if modal.is_local() else Path("/warpshelf")
UNTRACKED = [".venv", ".shelf", "build", "site", "out", "**/__pycache__"]

app = modal.App("warpshelf")
image = (
    modal.Image.debian_slim(python_version="3.12")
    .apt_install("g++", "git")  # Triton calls a compiler, and a record names a commit
    .pip_install_from_requirements(str(HERE / "requirements.txt"))
    .add_local_dir(CHECKOUT, "/warpshelf", ignore=UNTRACKED)
)


@app.function(image=image, gpu="L4", cpu=8, memory=16384, timeout=3600)
def measure(budget: float, ids: str) -> bytes:
    """The file of a run: `ids` are snippets, separated by spaces, or none for all."""
    words = ["python", "scripts/build.py", "run", "--out", "records.json", "--budget", str(budget)]
    subprocess.run([*words, *ids.split()], cwd=CHECKOUT, check=False)
    return (CHECKOUT / "records.json").read_bytes()


@app.local_entrypoint()
def main(gpu: str = "L4", budget: float = 1200, ids: str = "") -> bytes:
    return measure.with_options(gpu=gpu, timeout=int(budget) + 900).remote(budget, ids)
