// The handlers by name, as Python asks for them.
#include "samples.hpp"

std::map<std::string, Handler>& handlers() {
    static std::map<std::string, Handler> all;
    return all;
}
std::map<std::string, std::string>& sources() {
    static std::map<std::string, std::string> all;
    return all;
}

Add::Add(const char* name, Handler run, const char* file) {
    sources()[name] = file;
    if (!handlers().emplace(name, run).second) {
        fprintf(stderr, "papergpu: two handlers are called %s\n", name);
        abort();
    }
}

#pragma GCC visibility push(default)
extern "C" {
Handler papergpu_handler(const char* name) {
    auto& all = handlers();
    auto it = all.find(name);
    return it == all.end() ? nullptr : it->second;
}
// All names, each on a line.
const char* papergpu_names() {
    static std::string all;
    all.clear();
    for (auto& [name, run] : handlers()) all += name + "\n";
    return all.c_str();
}
u32 papergpu_sizes(u32 which) {
    const u32 sizes[] = {sizeof(Inst), sizeof(Launch), sizeof(Count), sizeof(Alloc), sizeof(Sample)};
    return sizes[which];
}
}
#pragma GCC visibility pop
