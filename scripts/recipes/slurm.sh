#!/bin/bash
# Measures one GPU of a Slurm cluster. From a checkout, once, where the network is:
#
#   python3 -m venv .venv && .venv/bin/pip install -r scripts/recipes/requirements.txt
#   sbatch scripts/recipes/slurm.sh       # sbatch --gpus=a100:1 ... for a certain kind
#
# It leaves records-JOB.json in the checkout. Preempted, it queues again and goes on.
#SBATCH --job-name=warpshelf
#SBATCH --output=warpshelf-%j.log
#SBATCH --open-mode=append
#SBATCH --ntasks=1
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=00:40:00
#SBATCH --requeue
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?start this with sbatch, from the checkout}"
python=${PYTHON:-.venv/bin/python}
if ! "$python" -c 'import torch, triton, typer, yaml' 2>/dev/null; then
    echo "$python: cannot import torch, triton, typer and yaml; install what" \
        "scripts/recipes/requirements.txt names, or sbatch --export=ALL,PYTHON=..." >&2
    exit 1
fi
# Two minutes less than the job has, so that what is under way can finish.
end=$(date -d "$(squeue --noheader --jobs "$SLURM_JOB_ID" --format %e)" +%s)
left=$((end - $(date +%s) - 120))
file=records-$SLURM_JOB_ID.json
run=("$python" scripts/build.py run --out "$file" --budget "$((left > 0 ? left : 0))")
status=0
srun "${run[@]}" "$@" || status=$?
[ "$status" != 143 ] || scontrol requeue "$SLURM_JOB_ID" # preempted, with time to end
if [ -f "$file" ]; then
    echo "$PWD/$file is the file to hand in: drop it into the form at"
    echo "https://github.com/warpshelf/warpshelf/issues/new?template=records.yml"
    echo "or, for a pull request, shelf import $file && git add snippets/*/results"
fi
exit "$status"
