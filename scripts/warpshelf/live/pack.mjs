// Run by Node: has Pyodide compile the part of Python's library that calculators need, itself, so
// that the bytecode is of its version, into an archive that is not compressed.
//
// Arguments: the folder of the npm package, the archive to write, the modules to have in it.

import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, target, ...modules] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
const python = await loadPyodide({ indexURL: folder });
python.globals.set("wanted", python.toPy(modules));
python.runPython(`
import importlib, importlib.util, io, marshal, sys, zipfile

for name in wanted:
    importlib.import_module(name)
[library] = [place for place in sys.path if place.endswith(".zip")]
made = io.BytesIO()
with zipfile.ZipFile(library) as found, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as kept:
    places = {getattr(one, "__file__", None) or "" for one in [*sys.modules.values()]}
    for place in sorted(places):
        if not place.startswith(f"{library}/"):
            continue
        inner = place.removeprefix(f"{library}/")
        code = compile(found.read(inner), inner, "exec", dont_inherit=True, optimize=2)
        head = importlib.util.MAGIC_NUMBER + bytes(12)
        kept.writestr(zipfile.ZipInfo(f"{inner}c"), head + marshal.dumps(code))
open("/packed.zip", "wb").write(made.getvalue())
`);
writeFileSync(target, python.FS.readFile("/packed.zip"));
