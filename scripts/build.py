"""The build script: the `shelf` command line, runnable from a bare checkout.

`python3 scripts/build.py run` needs torch, Triton, NumPy, typer, rich and PyYAML, and no
installation of this project.
"""

from warpshelf.__main__ import main

if __name__ == "__main__":
    main()
