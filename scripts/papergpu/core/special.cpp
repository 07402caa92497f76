// Special registers.
#include "running.hpp"

namespace {

enum Special {
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    WARPID,
    NWARPID,
    LT,
    LE,
    EQ,
    GT,
    GE,
    DYNAMIC_SMEM,
    TOTAL_SMEM,
    SMID,
    NSMID,
    CLUSTER_CTARANK,
    CLUSTER_NCTARANK,
    CLUSTER_CTAID_X,
    CLUSTER_CTAID_Y,
    CLUSTER_CTAID_Z,
    CLUSTER_NCTAID_X,
    CLUSTER_NCTAID_Y,
    CLUSTER_NCTAID_Z,
    CLUSTERID_X,
    CLUSTERID_Y,
    CLUSTERID_Z,
    NCLUSTERID_X,
    NCLUSTERID_Y,
    NCLUSTERID_Z,
    IS_EXPLICIT
};

}  // namespace

u32 special(const Launch& l, const Warp& w, u32 which, u32 lane) {
    const Block& b = *w.block;
    const u32 t = w.first + lane;
    switch (which) {
    case TID_X: return t % l.block[0];
    case TID_Y: return t / l.block[0] % l.block[1];
    case TID_Z: return t / (l.block[0] * l.block[1]);
    case NTID_X:
    case NTID_Y:
    case NTID_Z: return l.block[which - NTID_X];
    case CTAID_X:
    case CTAID_Y:
    case CTAID_Z: return b.at[which - CTAID_X];
    case NCTAID_X:
    case NCTAID_Y:
    case NCTAID_Z: return l.grid[which - NCTAID_X];
    case LANEID: return lane;
    case WARPID: return w.id;
    case NWARPID: return u32(b.warps.size());
    case LT: return (1u << lane) - 1;
    case LE: return u32((2ull << lane) - 1);
    case EQ: return 1u << lane;
    case GT: return ~u32((2ull << lane) - 1);
    case GE: return ~((1u << lane) - 1);
    case DYNAMIC_SMEM: return l.dynamic_shared;
    case TOTAL_SMEM: return l.shared;
    case SMID: return b.linear % 4;
    case NSMID: return 4;
    case CLUSTER_CTARANK: return b.rank;
    case CLUSTER_NCTARANK: return product(l.cluster);
    case CLUSTER_CTAID_X:
    case CLUSTER_CTAID_Y:
    case CLUSTER_CTAID_Z: return b.at[which - CLUSTER_CTAID_X] % l.cluster[which - CLUSTER_CTAID_X];
    case CLUSTER_NCTAID_X:
    case CLUSTER_NCTAID_Y:
    case CLUSTER_NCTAID_Z: return l.cluster[which - CLUSTER_NCTAID_X];
    case CLUSTERID_X:
    case CLUSTERID_Y:
    case CLUSTERID_Z: return b.at[which - CLUSTERID_X] / l.cluster[which - CLUSTERID_X];
    case NCLUSTERID_X:
    case NCLUSTERID_Y:
    case NCLUSTERID_Z: return l.grid[which - NCLUSTERID_X] / l.cluster[which - NCLUSTERID_X];
    case IS_EXPLICIT: return product(l.cluster) > 1;
    }
    return 0;
}

void thread_at(const Launch& l, const Warp& w, u32 lane, u32* at) {
    for (u32 d = 0; d < 3; ++d) at[d] = special(l, w, TID_X + d, lane);
}
