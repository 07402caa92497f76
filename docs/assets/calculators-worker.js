/* Runs the models of calculators, or another module: Python in a worker, so that typing never waits.

   The first message says where everything lies; each later one is a question with a number, and is
   answered with that number. Nothing is fetched after the first answer. */

const ENCODED = { "pyodide.asm.wasm": "wasm.packed", "library.zip": "library.packed" };
const TYPES = { "pyodide.asm.wasm": "application/wasm", "library.zip": "application/zip" };

const real = self.fetch.bind(self);
let broken; // called with a failed load: Pyodide itself would wait for it forever

async function got(url) {
  const answer = await real(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  return answer;
}

// What is large lies compressed under another name, so that no server decides how it travels.
self.fetch = async (request, ...rest) => {
  const url = String(request.url || request);
  const name = url.slice(url.lastIndexOf("/") + 1);
  try {
    if (!(name in ENCODED)) return await real(request, ...rest);
    const answer = await got(url.slice(0, -name.length) + ENCODED[name]);
    const body = watched(answer.body.pipeThrough(new DecompressionStream("gzip")));
    return new Response(body, { headers: { "Content-Type": TYPES[name] } });
  } catch (error) {
    broken?.(error);
    throw error;
  }
};

function watched(stream) {
  const reader = stream.getReader();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        broken?.(error);
        controller.error(error);
      }
    },
  });
}

async function load({ python, models }) {
  const [{ loadPyodide }, bundle] = await Promise.all([
    import(`${python}pyodide.mjs`),
    got(models).then((answer) => answer.json()),
  ]);
  const stdLibURL = `${python}library.zip`;
  const pyodide = await Promise.race([
    loadPyodide({ indexURL: python, stdLibURL }),
    new Promise((_, reject) => (broken = reject)),
  ]);
  for (const [path, text] of Object.entries(bundle.files)) {
    pyodide.FS.mkdirTree(`/shelf/${path}`.replace(/\/[^/]*$/, ""));
    pyodide.FS.writeFile(`/shelf/${path}`, text);
  }
  pyodide.runPython("import sys; sys.path.insert(0, '/shelf'); sys.dont_write_bytecode = True");
  const answered = pyodide.pyimport(bundle.module).answered;
  return (question) => {
    const asked = { ...question, context: bundle.contexts[question.id] || {} };
    return JSON.parse(answered(JSON.stringify(asked)));
  };
}

let loaded = null;

const lastLine = (error) => String(error.message || error).trim().split("\n").pop();

onmessage = async ({ data: { number, where, question } }) => {
  let answered;
  try {
    answered = await (loaded ??= load(where));
  } catch (error) {
    postMessage({ number, failed: lastLine(error), lost: true }); // this worker is of no more use
    return;
  }
  try {
    const started = performance.now();
    postMessage({ number, answer: answered(question), took: performance.now() - started });
  } catch (error) {
    postMessage({ number, failed: lastLine(error) });
  }
};
