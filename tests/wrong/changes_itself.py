# Rewrites its own source while it runs.
# says: changed while it ran; run it again
from pathlib import Path


def demo(device):
    source = Path(__file__)
    source.write_text(source.read_text().rstrip("\n") + "\n# changed\n")
    print("changed")
