"""A wheel with the engine compiled in it; `pip install -v` shows how far it is."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


class WithEngine(build_py):
    """Python's modules, and beside them a library for each level of processors."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # it is compiled at its first use, and again when its sources change
        # This folder is the package, whatever it is called where it is unpacked.
        spec = spec_from_file_location("papergpu", HERE / "__init__.py",
                                       submodule_search_locations=[str(HERE)])  # fmt: skip
        sys.modules["papergpu"] = module_from_spec(spec)
        from papergpu import build, errors

        folder = Path(self.build_lib, "papergpu", build.BUNDLED.name)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            build.compile_levels(folder)
        except errors.Unavailable as error:
            print(f"papergpu: without a compiled engine, which is made at its first use: {error}")


class ForAnyPython(bdist_wheel):
    """It depends on the platform, not on the version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class WithLibraries(Distribution):
    """It has files of one platform, though no extension modules."""

    def has_ext_modules(self) -> bool:
        return True


setup(distclass=WithLibraries, cmdclass={"build_py": WithEngine, "bdist_wheel": ForAnyPython})
