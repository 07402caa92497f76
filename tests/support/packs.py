"""A plugin of pytest: each launch of a test is also written as a pack, beside it what it left.

`PACKS` names the folder; of one program the first launches are written.
`replay.mjs` makes each anew with the engine as WebAssembly, and compares.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from papergpu.launch import Finding, Kernel, Result, Settings
from papergpu.pack import order_memory, pack_launch

LARGEST = 4 << 20  # bytes of memory
FOLDER = Path(os.environ["PACKS"])
MOST = 2  # of one program
seen: Counter[bytes] = Counter()
launch = Kernel.launch


def launch_and_write(
    self: Kernel, grid: Any, block: Any, parameters: Any, touched: Any = (), **options: Any
) -> Result:
    program = repr(self.program.names).encode() + self.program.instructions
    size = sum(one.size for one in touched)
    if self.spoilt[0] or seen[program] >= MOST or size > LARGEST:
        return launch(self, grid, block, parameters, touched, **options)
    seen[program] += 1
    # Threads of the host come in any order, and with them steps and findings.
    options["settings"] = replace(options.get("settings") or Settings(), threads=1)
    data = pack_launch(
        self.program, self.memory, self.ptx, grid, block, parameters, touched, **options
    )
    moves = json.loads(data[8 : 8 + int.from_bytes(data[4:8], "little")])["moves"]
    outcome: dict[str, Any] = {
        "kernel": self.program.name,
        "test": os.environ.get("PYTEST_CURRENT_TEST", ""),
    }
    try:
        result = launch(self, grid, block, parameters, touched, **options)
        outcome |= {"steps": result.steps, "printed": result.printed}
        return result
    except Finding as error:
        outcome["finding"] = str(error)
        raise
    finally:
        outcome["memory"] = []
        for number, one in enumerate(order_memory(touched, self.memory)):
            left = bytearray(ctypes.string_at(one.at, one.size))
            for piece, at, _, _ in moves:
                if piece == number:  # an address of this machine
                    left[at : at + 8] = bytes(8)
            outcome["memory"].append(hashlib.sha256(left).hexdigest())
        stem = FOLDER / hashlib.sha256(data + repr(outcome).encode()).hexdigest()[:20]
        stem.with_suffix(".json").write_text(json.dumps(outcome))
        stem.with_suffix(".pack").write_bytes(data)


Kernel.launch = launch_and_write  # type: ignore[method-assign]
