// What is said where no thread can go on.
#include "running.hpp"

void deadlock(Gang& g) {
    std::string said;
    int n = 0;
    Warp* first = nullptr;
    Launch& l = *g.launch;
    for (Warp& w : g.warps)
        for (Group& o : w.others) {
            if (!first) {
                first = &w;
                w.pc = o.pc;
                w.m = o.mask;
            }
            if (++n > 6) continue;
            char t[200];
            const Inst& i = l.code[o.pc];
            const char* what = "waits";
            std::string more;
            if (o.state == AT_BARRIER) {
                what = "waits at barrier";
                more = " " + std::to_string(o.barrier) + ", where " +
                       std::to_string(w.block->barriers[o.barrier].arrived) + " threads are of " +
                       std::to_string(w.block->barriers[o.barrier].needed ? w.block->barriers[o.barrier].needed
                                                                          : lanes_alive(*w.block));
            } else if (o.state == AT_SYNC) {
                what = "waits for other lanes of its warp";
            } else if (o.state == AT_CLUSTER) what = "waits for its cluster";
            else if (o.state == POLLING) {
                w.m = o.mask;
                what = "waits for";
                more = matrix_waiting(w, i);
                if (more.empty()) more = tensor_waiting(w, i);
                if (more.empty()) more = async_waiting(w, i);
                more = " " + more;
            }
            snprintf(t, sizeof t, "%swarp %u of block (%u, %u, %u), lanes %#x, @%u %s", said.empty() ? "" : "; ", w.id,
                     w.block->at[0], w.block->at[1], w.block->at[2], o.mask, o.pc, what);
            said += t + more;
        }
    if (n > 6) said += "; and " + std::to_string(n - 6) + " more";
    throw Fault("no thread can go on: " + said + ": let those that are waited for come there, or wait for fewer");
}
