// For tests of tests: the handler `mutant.` does what another one does and then flips the lowest bit of its
// result in lane 0, or of its predicate. Only a kernel whose instructions were given it runs it.
#include "core.hpp"

namespace {

Handler original = nullptr;
HANDLER("mutant.", original(w, i); const u32 at = i.d       ? i.d
                                                  : i.count ? list(w, i)[0]
                                                            : 0;
        if (at && w.m & 1) * (u32*)(w.R + at) ^= 1;)

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
