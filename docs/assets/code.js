/* Colours of code: Python and CUDA C++, in the classes that the theme has colours for.

   A page is sent with its code in one colour, which is what is read where no script runs: a span
   around each word would be a third of the pages, and of the time of a build. A block is
   coloured when it is about to be seen. */

(() => {
  "use strict";

  const words = (text) => `\\b(?:${text.trim().split(/\s+/).join("|")})\\b`;
  const STRING = String.raw`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`;
  const NUMBER = String.raw`\b(?:0[xX][\da-fA-F_']+|\d[\d_']*(?:\.\d*)?(?:[eE][-+]?\d+)?)\w*|\B\.\d+\w*`;
  const SIGNS = { o: String.raw`[-+*/%=<>!&|^~?@]+`, p: String.raw`[()[\]{}.,:;]+` };
  const expression = (parts) =>
    new RegExp(Object.entries(parts).map(([name, part]) => `(?<${name}>${part})`).join("|"), "g");
  const PYTHON = expression({
    c1: "#.*",
    sd: String.raw`\b[rR]?"""[^]*?"""|\b[rR]?'''[^]*?'''|"""[^]*?"""|'''[^]*?'''`,
    s2: `\\b[rbfRBF]{1,2}(?:${STRING})|${STRING}`,
    nd: String.raw`@[A-Za-z_][\w.]*`,
    kc: words("True False None"),
    ow: words("and or not in is"),
    k: words(`as assert async await break class continue def del elif else except finally for from
      global if import lambda nonlocal pass raise return try while with yield`),
    nb: words(`abs all any bool bytes dict divmod enumerate filter float frozenset getattr hash int
      isinstance iter len list map max min next object open ord pow print property range repr
      reversed round set setattr slice sorted staticmethod str sum super tuple type zip
      ArithmeticError AssertionError AttributeError Exception IndexError KeyError NotImplementedError
      OSError OverflowError RuntimeError StopIteration TypeError ValueError ZeroDivisionError`),
    bp: words("self cls"),
    mi: NUMBER,
    n: String.raw`[A-Za-z_]\w*`,
    ...SIGNS,
  });
  const CUDA = expression({
    c1: String.raw`//.*|/\*[^]*?\*/`,
    cp: String.raw`#[ \t]*(?:include|define|undef|if|ifdef|ifndef|elif|else|endif|pragma|error)\b.*`,
    s2: STRING,
    kt: words(`bool char double float half int int8_t int16_t int32_t int64_t long short signed
      size_t uint8_t uint16_t uint32_t uint64_t unsigned void float2 float4 int2 int4 uint2 uint4
      dim3 __half __half2 __nv_bfloat16 __nv_bfloat162`),
    kc: words("true false nullptr NULL"),
    k: words(`__align__ __constant__ __device__ __forceinline__ __global__ __grid_constant__ __host__
      __launch_bounds__ __noinline__ __restrict__ __shared__ alignas asm auto break case class const
      constexpr continue decltype default do else enum explicit extern for if inline namespace
      operator private public requires return sizeof static static_assert struct switch template
      typedef typename union using volatile while`),
    mi: NUMBER,
    n: String.raw`[A-Za-z_]\w*`,
    ...SIGNS,
  });
  const LANGUAGES = { python: PYTHON, cuda: CUDA, "c++": CUDA };
  const NAMED = { def: "nf", class: "nc", struct: "nc", namespace: "nn" }; // what a word names

  function colour(code, language) {
    const text = code.textContent;
    const parts = document.createDocumentFragment();
    let [end, before] = [0, ""];
    for (const match of text.matchAll(language)) {
      let name = Object.keys(match.groups).find((key) => match.groups[key] !== undefined);
      if (name === "n") name = NAMED[before];
      if (name === "nb" && before.endsWith(".")) name = undefined; // tl.max is none of Python's own
      before = match[0];
      if (!name) continue;
      const span = document.createElement("span");
      span.className = name;
      span.textContent = match[0];
      parts.append(text.slice(end, match.index), span);
      end = match.index + match[0].length;
    }
    parts.append(text.slice(end));
    code.replaceChildren(parts);
  }

  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        seen.unobserve(target);
        colour(target, LANGUAGES[target.closest("[data-ws-code]").dataset.wsCode]);
      }
    },
    { rootMargin: "50% 0px" },
  );

  function show() {
    for (const [name, language] of Object.entries(LANGUAGES)) {
      for (const block of document.getElementsByClassName(`language-${name}`)) {
        const code = block.querySelector("pre > code");
        if (!language || !code || code.querySelector("span, [id]") || block.dataset.wsCode) continue;
        block.dataset.wsCode = name;
        seen.observe(code);
      }
    }
  }

  // With instant navigation a page changes without being loaded; `document$` tells of each.
  // A page opened from a disk is the only one: there `document$` ends before it says anything.
  if (window.document$) window.document$.subscribe({ next: show, complete: show });
  else show();
  addEventListener("ws-code", show); // a fold has loaded a file
})();
