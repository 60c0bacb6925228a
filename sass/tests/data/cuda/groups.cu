// Cooperative groups: the grid, the block, tiles, coalesced threads.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;

extern "C" __global__ void grid_sum(const int *in, int *out, int n) {
    cg::grid_group grid = cg::this_grid();
    int sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += in[i];
    out[grid.thread_rank()] = sum;
    grid.sync();
    if (grid.thread_rank() == 0) {
        for (int i = 1; i < grid.size(); i++) sum += out[i];
        out[0] = sum;
    }
}
extern "C" __global__ void tiles(const float *in, float *out) {
    cg::thread_block block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto quad = cg::tiled_partition<4>(warp);
    float v = in[block.thread_rank()];
    out[block.thread_rank()] = cg::reduce(warp, v, cg::plus<float>()) + cg::reduce(quad, v, cg::greater<float>());
    out[block.size() + block.thread_rank()] = cg::inclusive_scan(warp, (int)v);
    if (v > 0) {
        auto active = cg::coalesced_threads();
        out[active.thread_rank()] = cg::reduce(active, (int)v, cg::plus<int>()) + active.size();
        active.sync();
    }
    auto parts = cg::labeled_partition(warp, (int)v & 3);
    out[parts.meta_group_rank()] = parts.shfl(v, 0);
    block.sync();
}
extern "C" __global__ void copy(const int4 *in, int4 *out, int n) {
    __shared__ int4 tile[256];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, tile, in, sizeof(int4) * 256);
    cg::wait(block);
    out[block.thread_rank()] = tile[255 - block.thread_rank()];
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster(int *out) {
    __shared__ int mine;
    cg::cluster_group cluster = cg::this_cluster();
    mine = threadIdx.x;
    cluster.sync();
    int *other = cluster.map_shared_rank(&mine, cluster.block_rank() ^ 1);
    out[cluster.thread_rank()] = *other;
    atomicAdd(other, 1);
    cluster.barrier_arrive();
    cluster.barrier_wait();
}
#endif
