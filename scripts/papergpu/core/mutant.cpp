// For tests of tests: handlers that stand in for another one and do its work wrongly. Only a kernel whose
// instructions were given them runs them.
#include "core.hpp"

namespace {

Handler original = nullptr;

void flip(Warp& w, u32 at) {  // the lowest bit of lane 0, or of a predicate, where lane 0 executes
    if (at && w.m & 1) *(u32*)(w.R + at) ^= 1;
}

// Its result is wrong: d, or of its list the first.
HANDLER("mutant.", original(w, i); flip(w, i.d ? i.d : i.count ? list(w, i)[0] : 0);)
// Of those whose `list` is no list but a predicate, their second result: d is wrong, or the predicate is.
HANDLER("mutant.first", original(w, i); flip(w, i.d);)
HANDLER("mutant.second", original(w, i); flip(w, i.count ? i.list : 0);)
// It sees a wrong value: of its list the first, or b.
HANDLER("mutant.given", const u32 at = i.count ? list(w, i)[0] : i.b; flip(w, at); original(w, i); flip(w, at);)
// The lowest of the lanes that execute it is left out.
HANDLER("mutant.lane", const u32 m = w.m; w.m &= m - 1; if (w.m) original(w, i); w.m = m;)
HANDLER("mutant.nothing", (void)w; (void)i;)
// Nothing is wrong: what tells it from its original looks at no more than its address.
HANDLER("mutant.same", original(w, i);)

}  // namespace

#pragma GCC visibility push(default)
extern "C" void papergpu_mutant(Handler of) { original = of; }
// The names that handlers of one source file have, each on a line.
extern "C" const char* papergpu_names_of(const char* file) {
    static std::string all;
    all.clear();
    for (auto& [name, from] : sources())
        if (from.size() >= strlen(file) && !from.compare(from.size() - strlen(file), std::string::npos, file))
            all += name + "\n";
    return all.c_str();
}
#pragma GCC visibility pop
