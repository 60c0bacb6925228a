// Well-known patterns that are right, and that a checker may take for mistakes. Launches: cases.json.

extern "C" {

__global__ void tree_reduction(const int *in, int *out) {
    __shared__ int s[128];
    s[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
    __syncthreads();
    for (unsigned d = 64; d > 0; d /= 2) {
        if (threadIdx.x < d)
            s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = s[0];
}

__global__ void shuffle_reduction(const int *in, int *out) {
    __shared__ int sums[32];
    int x = in[threadIdx.x];
    for (int d = 16; d > 0; d /= 2)
        x += __shfl_down_sync(0xffffffff, x, d);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x < 32) {
        x = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0;
        for (int d = 16; d > 0; d /= 2)
            x += __shfl_down_sync(0xffffffff, x, d);
        if (threadIdx.x == 0)
            *out = x;
    }
}

__global__ void part_of_a_warp(const int *in, int *out) {
    if (threadIdx.x < 8) {
        int x = in[threadIdx.x];
        for (int d = 4; d > 0; d /= 2)
            x += __shfl_down_sync(0xff, x, d, 8);
        if (threadIdx.x == 0)
            *out = x;
    }
}

__global__ void blelloch_scan(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    unsigned offset = 1;
    for (unsigned d = 32; d > 0; d /= 2, offset *= 2) {
        __syncthreads();
        if (threadIdx.x < d)
            s[offset * (2 * threadIdx.x + 2) - 1] += s[offset * (2 * threadIdx.x + 1) - 1];
    }
    if (threadIdx.x == 0)
        s[63] = 0;
    for (unsigned d = 1; d < 64; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (threadIdx.x < d) {
            unsigned left = offset * (2 * threadIdx.x + 1) - 1, right = offset * (2 * threadIdx.x + 2) - 1;
            int t = s[left];
            s[left] = s[right];
            s[right] += t;
        }
    }
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}

__global__ void privatised_histogram(const unsigned *in, unsigned *out) {
    __shared__ unsigned bins[16];
    for (unsigned k = threadIdx.x; k < 16; k += blockDim.x)
        bins[k] = 0;
    __syncthreads();
    atomicAdd(&bins[in[blockIdx.x * 64 + threadIdx.x] % 16], 1u);
    __syncthreads();
    for (unsigned k = threadIdx.x; k < 16; k += blockDim.x)
        atomicAdd(&out[k], bins[k]);
}

__global__ void named_barrier_ring(const int *in, int *out) {
    __shared__ int ring[2][64];
    if (threadIdx.x < 32) {
        for (int k = 0; k < 8; k++) {
            if (k >= 2)
                asm volatile("bar.sync %0, 96;" ::"r"(3 + (k & 1)) : "memory");
            ring[k & 1][threadIdx.x] = in[64 * k + threadIdx.x];
            ring[k & 1][threadIdx.x + 32] = in[64 * k + threadIdx.x + 32];
            __threadfence_block();
            asm volatile("bar.arrive %0, 96;" ::"r"(1 + (k & 1)) : "memory");
        }
    } else {
        int sum = 0;
        for (int k = 0; k < 8; k++) {
            asm volatile("bar.sync %0, 96;" ::"r"(1 + (k & 1)) : "memory");
            sum += ring[k & 1][95 - threadIdx.x];
            if (k < 6)
                asm volatile("bar.arrive %0, 96;" ::"r"(3 + (k & 1)) : "memory");
        }
        out[threadIdx.x - 32] = sum;
    }
}

__global__ void arrive_and_return(const int *in, int *out) {
    __shared__ int data[32];
    if (threadIdx.x < 32) {
        data[threadIdx.x] = in[threadIdx.x];
        __threadfence_block();
        asm volatile("bar.arrive 1, 96;" ::: "memory");
        return;
    }
    asm volatile("bar.sync 1, 96;" ::: "memory");
    out[threadIdx.x - 32] = data[threadIdx.x % 32];
}

__global__ void barrier_of_pairs(const int *in, int *out) {
    __shared__ int s[128];
    unsigned pair = threadIdx.x / 64;
    s[threadIdx.x] = in[threadIdx.x];
    asm volatile("bar.sync %0, 64;" ::"r"(pair + 1) : "memory");
    out[threadIdx.x] = s[pair * 64 + 63 - threadIdx.x % 64];
}

__global__ void mbarrier_rounds(const int *in, int *out) {
    __shared__ unsigned long long object;
    __shared__ int s[2][64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&object);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < 6; k++) {
        unsigned done = 0;
        s[k & 1][threadIdx.x] = in[64 * k + threadIdx.x];
        asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory");
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(at), "r"(k & 1) : "memory");
        sum += s[k & 1][63 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}

__global__ void cp_async_mbarrier(const int4 *in, int *out) {
    __shared__ unsigned long long object;
    __shared__ int4 tile[32];
    unsigned at = (unsigned)__cvta_generic_to_shared(&object), done = 0;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at) : "memory");
    __syncthreads();
    if (threadIdx.x < 32) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
    } else {
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(at) : "memory");
        out[threadIdx.x - 32] = tile[63 - threadIdx.x].x;
    }
}

__global__ void cp_async_pipeline(const int4 *in, int *out) {
    __shared__ int4 tile[3][64];
    int sum = 0;
    for (int k = 0; k < 10; k++) {
        if (k < 8) {
            unsigned to = (unsigned)__cvta_generic_to_shared(&tile[k % 3][threadIdx.x]);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + 64 * k + threadIdx.x)
                         : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (k >= 2) {
            asm volatile("cp.async.wait_group 2;" ::: "memory");
            __syncthreads();
            sum += tile[(k - 2) % 3][63 - threadIdx.x].x;
            __syncthreads();
        }
    }
    out[threadIdx.x] = sum;
}

__global__ void grid_barrier(unsigned *arrived, int *data, int *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    data[i] = i * 3;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned *)arrived < gridDim.x)
            ;
        __threadfence();
    }
    __syncthreads();
    out[i] = ((volatile int *)data)[n - 1 - i];
}

__global__ void last_block(const int *in, unsigned *done, volatile int *partial, int *out) {
    int sum = __reduce_add_sync(0xffffffff, in[32 * blockIdx.x + threadIdx.x]);
    unsigned ticket = 0;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        ticket = atomicInc(done, gridDim.x - 1);
        __threadfence();
    }
    ticket = __shfl_sync(0xffffffff, ticket, 0);
    __syncwarp();
    if (ticket == gridDim.x - 1) {
        int x = threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0;
        int total = __reduce_add_sync(0xffffffff, x);
        if (threadIdx.x == 0)
            *out = total;
    }
}

__global__ void ticket_lock(unsigned *next, unsigned *serving, int *account) {
    if (threadIdx.x == 0) {
        unsigned ticket = atomicAdd(next, 1u);
        while (*(volatile unsigned *)serving != ticket)
            ;
        __threadfence();
        ((volatile int *)account)[0] += ticket;
        ((volatile int *)account)[1] -= ticket;
        __threadfence();
        atomicAdd(serving, 1u);
    }
    __syncthreads();
}

__global__ void lock_of_lanes(unsigned *lock, int *count) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0u, 1u) == 0) {
            __threadfence();
            *(volatile int *)count += 1;
            __threadfence();
            atomicExch(lock, 0u);
            done = true;
        }
    }
}

__global__ void look_back(const int *in, int *prefix, unsigned *ready) {
    int sum = __reduce_add_sync(0xffffffff, in[32 * blockIdx.x + threadIdx.x]);
    if (threadIdx.x == 0) {
        int before = 0;
        if (blockIdx.x > 0) {
            unsigned seen;
            do
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                             : "=r"(seen) : "l"(ready + blockIdx.x - 1) : "memory");
            while (!seen);
            before = prefix[blockIdx.x - 1];
        }
        prefix[blockIdx.x] = before + sum;
        asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(ready + blockIdx.x) : "memory");
    }
}

__global__ void matrix_tiles(const int *a, const int *b, int *c) {
    __shared__ int ta[16][16], tb[16][17];
    unsigned x = threadIdx.x, y = threadIdx.y;
    int sum = 0;
    for (int t = 0; t < 2; t++) {
        ta[y][x] = a[y * 32 + t * 16 + x];
        tb[y][x] = b[(t * 16 + y) * 16 + x];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            sum += ta[y][k] * tb[k][x];
        __syncthreads();
    }
    c[y * 16 + x] = sum;
}

__global__ void transposition(const int *in, int *out) {
    __shared__ int tile[16][17];
    unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    for (int k = 0; k < 16; k += 8)
        tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * 32 + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    for (int k = 0; k < 16; k += 8)
        out[(y + k) * 32 + x] = tile[threadIdx.x][threadIdx.y + k];
}

__global__ void any_bits(unsigned *scratch, unsigned *out) {
    const unsigned bits[8] = {0xfff5fdf7, 0xffffffff, 0xcdcdcdcd, 0xdeadbeef, 0x7ff80000, 0xfff5fdf7, 0, 0xbaadf00d};
    scratch[threadIdx.x] = bits[threadIdx.x % 8];
    __syncthreads();
    out[threadIdx.x] = scratch[63 - threadIdx.x];
}

__global__ void neighbouring_bytes(unsigned char *scratch, unsigned char *out) {
    __shared__ unsigned char s[64];
    s[threadIdx.x] = threadIdx.x;
    scratch[threadIdx.x] = threadIdx.x * 2;
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x] + scratch[63 - threadIdx.x];
}

__global__ void carved_shared(const int *in, int *out) {
    extern __shared__ double carve[];
    double *wide = carve;
    int *words = (int *)(wide + 32);
    short *halves = (short *)(words + 64);
    if (threadIdx.x < 32)
        wide[threadIdx.x] = in[threadIdx.x];
    words[threadIdx.x] = in[threadIdx.x];
    halves[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    unsigned from = 63 - threadIdx.x;
    out[threadIdx.x] = (int)wide[from / 2] + words[from] + halves[from];
}

__global__ void local_sort(const int *in, int *out) {
    int a[16];
    for (int k = 0; k < 16; k++)
        a[k] = in[(threadIdx.x * 7 + k * 11) % 32];
    for (int k = 1; k < 16; k++) {
        int j = k, x = a[k];
        for (; j > 0 && a[j - 1] > x; j--)
            a[j] = a[j - 1];
        a[j] = x;
    }
    out[threadIdx.x] = a[in[threadIdx.x] % 16];
}

__global__ void scopes(unsigned *all, unsigned *blocks, unsigned *system) {
    __shared__ unsigned here;
    if (threadIdx.x == 0)
        here = 0;
    __syncthreads();
    atomicAdd_block(&here, 1u);
    atomicAdd(all, 1u);
    atomicAdd_block(&blocks[blockIdx.x], threadIdx.x);
    atomicMax_system(&system[threadIdx.x % 4], threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(all, here);
}

__global__ void warp_butterfly(const int *in, int *out) {
    __shared__ int s[64];
    int x = in[threadIdx.x];
    for (int d = 1; d < 32; d *= 2) {
        s[threadIdx.x] = x;
        __syncwarp();
        x += s[threadIdx.x ^ d];
        __syncwarp();
    }
    out[threadIdx.x] = x;
}

__global__ void divergent_group(const int *in, int *out) {
    __shared__ int s[64];
    int x = in[threadIdx.x];
    unsigned group = __ballot_sync(0xffffffff, x % 3 == 0);
    if (x % 3 == 0) {
        s[threadIdx.x] = x;
        __syncwarp(group);
        unsigned leader = __ffs(group) - 1;
        out[threadIdx.x] = s[threadIdx.x / 32 * 32 + leader] + __shfl_sync(group, x, leader);
    } else {
        out[threadIdx.x] = x;
    }
}

__global__ void aggregated_atomic(const int *in, unsigned *count) {
    int x = in[blockIdx.x * 64 + threadIdx.x];
    if (x % 5 < 2) {
        unsigned active = __activemask();
        unsigned rank = __popc(active & ((1u << threadIdx.x % 32) - 1));
        if (rank == 0)
            atomicAdd(count, __popc(active));
        __syncwarp(active);
    }
}

__global__ void warps_return(const int *in, int *out, unsigned n) {
    __shared__ int s[64];
    if (threadIdx.x >= n)
        return;
    s[threadIdx.x] = in[threadIdx.x];
    asm volatile("bar.sync 1, %0;" ::"r"(n) : "memory");
    if (threadIdx.x < 32)
        out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void counting_barriers(const int *in, int *out) {
    int x = in[threadIdx.x];
    int many = __syncthreads_count(x % 3 == 0);
    int all = __syncthreads_and(x >= 0);
    int any = __syncthreads_or(x == 17);
    out[threadIdx.x] = many + 100 * all + 1000 * any;
}

__global__ void uniform_branch(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    int x = 0;
    if (in[0] == 0)
        for (int k = 0; k < in[3]; k++) {
            __syncthreads();
            x += s[(threadIdx.x + k) % 64];
        }
    out[threadIdx.x] = x;
}

__global__ void same_value(const int *in, int *out) {
    __shared__ int any;
    any = 0;
    __syncthreads();
    if (in[threadIdx.x] % 7 == 3)
        any = 1;
    __syncthreads();
    out[threadIdx.x] = any;
}

__global__ void in_place(int *data, const int *__restrict__ weights) {
    data[threadIdx.x] = data[threadIdx.x] * __ldg(&weights[63 - threadIdx.x]);
}

__global__ void shared_flag_atomic(const int *in, int *out) {
    __shared__ int data[32], flag;
    if (threadIdx.x == 0)
        flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        data[threadIdx.x] = in[threadIdx.x];
        __threadfence_block();
        atomicAdd(&flag, 1);
    } else {
        while (atomicAdd(&flag, 0) < 32)
            ;
        __threadfence_block();
        out[threadIdx.x - 32] = data[63 - threadIdx.x];
    }
}

__global__ void ping_pong(int *data, volatile unsigned *flags, int *out) {
    unsigned me = blockIdx.x, other = 1 - me;
    data[32 * me + threadIdx.x] = me * 1000 + threadIdx.x;
    __threadfence();
    __syncwarp();
    if (threadIdx.x == 0)
        flags[me] = 1;
    while (flags[other] == 0)
        ;
    __threadfence();
    out[32 * me + threadIdx.x] = ((volatile int *)data)[32 * other + threadIdx.x];
}

__global__ void guarded_tail(const int *in, int *out, unsigned n) {
    unsigned i = threadIdx.x;
    const int2 *pairs = (const int2 *)in;
    int x = 0;
    if (2 * i + 1 < n) {
        int2 pair = pairs[i];
        x = pair.x + pair.y;
    }
    if (i < 32)
        out[i] = x;
}

__global__ void end_pointer(const int *in, int *out) {
    int sum = 0;
    const int *end = in + 25;
    for (const int *at = in + threadIdx.x; at < end; at += 32)
        sum += *at;
    out[threadIdx.x] = sum;
}

__global__ void padded_fields(int *out) {
    struct Padded {
        char tag;
        int value;
    };
    __shared__ Padded records[64];
    records[threadIdx.x].tag = threadIdx.x;
    records[threadIdx.x].value = threadIdx.x * 9;
    __syncthreads();
    Padded mine;
    mine.tag = records[63 - threadIdx.x].tag;
    mine.value = records[63 - threadIdx.x].value;
    out[threadIdx.x] = mine.tag + mine.value;
}

__global__ void stencil_with_halo(const int *in, int *out) {
    __shared__ int tile[66];
    unsigned i = threadIdx.x + 1;
    tile[i] = in[threadIdx.x];
    if (threadIdx.x < 2)
        tile[threadIdx.x * 65] = -1;
    __syncthreads();
    if (threadIdx.x % 4 != 0)
        out[threadIdx.x] = tile[i - 1] + tile[i] + tile[i + 1];
    __syncthreads();
}

} // extern "C"
