// Accesses of shared memory that nothing orders, and for each the same work done right. Launches: cases.json.

extern "C" {

__global__ void no_barrier_before_read(int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x; // OTHER
    out[threadIdx.x] = s[63 - threadIdx.x]; // BUG
}

__global__ void no_barrier_before_read_ok(int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void no_barrier_before_write(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    int other = s[63 - threadIdx.x]; // OTHER
    s[threadIdx.x] = 2 * other; // BUG
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x ^ 1] + other;
}

__global__ void no_barrier_before_write_ok(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    int other = s[63 - threadIdx.x];
    __syncthreads();
    s[threadIdx.x] = 2 * other;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x ^ 1] + other;
}

__global__ void two_writers(const int *in, int *out) {
    __shared__ int chosen;
    if (threadIdx.x % 32 == 5)
        chosen = in[threadIdx.x]; // BUG
    __syncthreads();
    out[threadIdx.x] = chosen;
}

__global__ void two_writers_ok(const int *in, int *out) {
    __shared__ int chosen;
    if (threadIdx.x == 5)
        chosen = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = chosen;
}

__global__ void tile_loop_one_barrier(const int *in, int *out) {
    __shared__ int tile[64];
    int sum = 0;
    for (int t = 0; t < 4; t++) {
        tile[threadIdx.x] = in[64 * t + threadIdx.x]; // BUG
        __syncthreads();
        for (int k = 0; k < 64; k++)
            sum += tile[k] * (k ^ threadIdx.x); // OTHER
    }
    out[threadIdx.x] = sum;
}

__global__ void tile_loop_one_barrier_ok(const int *in, int *out) {
    __shared__ int tile[64];
    int sum = 0;
    for (int t = 0; t < 4; t++) {
        tile[threadIdx.x] = in[64 * t + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < 64; k++)
            sum += tile[k] * (k ^ threadIdx.x);
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void double_buffer_same_half(const int *in, int *out) {
    __shared__ int tile[2][64];
    tile[0][threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    int sum = 0;
#pragma unroll 1
    for (int t = 0; t < 3; t++) {
        tile[t & 1][threadIdx.x] = in[64 * (t + 1) + threadIdx.x]; // BUG
        sum += tile[t & 1][63 - threadIdx.x]; // OTHER
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void double_buffer_same_half_ok(const int *in, int *out) {
    __shared__ int tile[2][64];
    tile[0][threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    int sum = 0;
#pragma unroll 1
    for (int t = 0; t < 3; t++) {
        tile[(t + 1) & 1][threadIdx.x] = in[64 * (t + 1) + threadIdx.x];
        sum += tile[t & 1][63 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void reduction_no_last_barrier(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    for (unsigned d = 32; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.x < d)
            s[threadIdx.x] += s[threadIdx.x + d]; // OTHER
    }
    out[threadIdx.x] = s[0]; // BUG
}

__global__ void reduction_no_last_barrier_ok(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    for (unsigned d = 32; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.x < d)
            s[threadIdx.x] += s[threadIdx.x + d];
    }
    __syncthreads();
    out[threadIdx.x] = s[0];
}

__global__ void warp_synchronous_tail(const int *in, int *out) {
    __shared__ int s[64];
    volatile int *v = s;
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        v[threadIdx.x] += v[threadIdx.x + 32]; // OTHER
        if (threadIdx.x < 16)
            v[threadIdx.x] += v[threadIdx.x + 16]; // BUG
        if (threadIdx.x < 8)
            v[threadIdx.x] += v[threadIdx.x + 8]; // BUG
        if (threadIdx.x == 0)
            *out = v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7]; // BUG
    }
}

__global__ void warp_synchronous_tail_ok(const int *in, int *out) {
    __shared__ int s[64];
    volatile int *v = s;
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        v[threadIdx.x] += v[threadIdx.x + 32];
        __syncwarp();
        if (threadIdx.x < 16)
            v[threadIdx.x] += v[threadIdx.x + 16];
        __syncwarp();
        if (threadIdx.x < 8)
            v[threadIdx.x] += v[threadIdx.x + 8];
        __syncwarp();
        if (threadIdx.x == 0)
            *out = v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7];
    }
}

__global__ void halves_of_a_warp(const int *in, int *out) {
    __shared__ int s[16];
    if (threadIdx.x < 16)
        s[threadIdx.x] = in[threadIdx.x]; // OTHER
    if (threadIdx.x >= 16)
        out[threadIdx.x] = s[31 - threadIdx.x]; // BUG
}

__global__ void halves_of_a_warp_ok(const int *in, int *out) {
    __shared__ int s[16];
    if (threadIdx.x < 16)
        s[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    if (threadIdx.x >= 16)
        out[threadIdx.x] = s[31 - threadIdx.x];
}

__global__ void plain_read_of_atomic(const int *in, int *out) {
    __shared__ int count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    if (in[threadIdx.x] % 3 == 0)
        atomicAdd(&count, 1); // OTHER
    out[threadIdx.x] = count; // BUG
}

__global__ void plain_read_of_atomic_ok(const int *in, int *out) {
    __shared__ int count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    if (in[threadIdx.x] % 3 == 0)
        atomicAdd(&count, 1);
    __syncthreads();
    out[threadIdx.x] = count;
}

__global__ void reset_beside_additions(const int *in, int *out) {
    __shared__ int sum;
    if (threadIdx.x == 0)
        sum = 0; // OTHER
    atomicAdd(&sum, in[threadIdx.x]); // BUG
    __syncthreads();
    if (threadIdx.x == 0)
        *out = sum;
}

__global__ void reset_beside_additions_ok(const int *in, int *out) {
    __shared__ int sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0)
        *out = sum;
}

__global__ void mbarrier_init_race(unsigned *out) {
    __shared__ unsigned long long object;
    unsigned at = (unsigned)__cvta_generic_to_shared(&object);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory"); // OTHER
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory"); // BUG
    out[threadIdx.x] = threadIdx.x;
}

__global__ void mbarrier_init_race_ok(unsigned *out) {
    __shared__ unsigned long long object;
    unsigned at = (unsigned)__cvta_generic_to_shared(&object);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory");
    out[threadIdx.x] = threadIdx.x;
}

__global__ void cp_async_before_wait(const int4 *in, int *out) {
    __shared__ int4 tile[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory"); // OTHER
    out[threadIdx.x] = tile[threadIdx.x].x; // BUG
    asm volatile("cp.async.wait_all;" ::: "memory");
}

__global__ void cp_async_before_wait_ok(const int4 *in, int *out) {
    __shared__ int4 tile[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = tile[threadIdx.x].x;
}

__global__ void cp_async_no_barrier(const int4 *in, int *out) {
    __shared__ int4 tile[64];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory"); // OTHER
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = tile[63 - threadIdx.x].x; // BUG
}

__global__ void cp_async_no_barrier_ok(const int4 *in, int *out) {
    __shared__ int4 tile[64];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x].x;
}

__global__ void cp_async_into_tile_in_use(const int4 *in, int *out) {
    __shared__ int4 tile[64];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    int sum = 0;
#pragma unroll 1
    for (int t = 0; t < 2; t++) {
        const int4 *from = in + 64 * t + threadIdx.x;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory"); // BUG
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        sum += tile[63 - threadIdx.x].x; // OTHER
    }
    out[threadIdx.x] = sum;
}

__global__ void cp_async_into_tile_in_use_ok(const int4 *in, int *out) {
    __shared__ int4 tile[64];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    int sum = 0;
#pragma unroll 1
    for (int t = 0; t < 2; t++) {
        const int4 *from = in + 64 * t + threadIdx.x;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        sum += tile[63 - threadIdx.x].x;
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void cp_async_waits_for_too_few(const int4 *in, int *out) {
    __shared__ int4 tile[2][64];
    for (int t = 0; t < 2; t++) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&tile[t][threadIdx.x]);
        const int4 *from = in + 64 * t + threadIdx.x;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory"); // OTHER
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    int sum = 0;
    for (int t = 0; t < 2; t++) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        sum += tile[t][63 - threadIdx.x].x; // BUG
    }
    out[threadIdx.x] = sum;
}

__global__ void cp_async_waits_for_too_few_ok(const int4 *in, int *out) {
    __shared__ int4 tile[2][64];
    for (int t = 0; t < 2; t++) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&tile[t][threadIdx.x]);
        const int4 *from = in + 64 * t + threadIdx.x;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    int sum = tile[0][63 - threadIdx.x].x;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = sum + tile[1][63 - threadIdx.x].x;
}

__global__ void shared_histogram_plain(const int *in, int *out) {
    __shared__ int bins[16];
    if (threadIdx.x < 16)
        bins[threadIdx.x] = 0;
    __syncthreads();
    bins[in[threadIdx.x] % 16]++; // BUG
    __syncthreads();
    if (threadIdx.x < 16)
        out[threadIdx.x] = bins[threadIdx.x];
}

__global__ void shared_histogram_plain_ok(const int *in, int *out) {
    __shared__ int bins[16];
    if (threadIdx.x < 16)
        bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[threadIdx.x] % 16], 1);
    __syncthreads();
    if (threadIdx.x < 16)
        out[threadIdx.x] = bins[threadIdx.x];
}

__global__ void bits_of_one_word(unsigned *out) {
    __shared__ unsigned mask;
    if (threadIdx.x == 0)
        mask = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 3)
        mask |= 1u << threadIdx.x / 32; // BUG
    __syncthreads();
    if (threadIdx.x == 0)
        *out = mask;
}

__global__ void bits_of_one_word_ok(unsigned *out) {
    __shared__ unsigned mask;
    if (threadIdx.x == 0)
        mask = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 3)
        atomicOr(&mask, 1u << threadIdx.x / 32);
    __syncthreads();
    if (threadIdx.x == 0)
        *out = mask;
}

__global__ void scan_in_place(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    for (unsigned d = 1; d < 64; d *= 2) {
        __syncthreads();
        if (threadIdx.x >= d)
            s[threadIdx.x] += s[threadIdx.x - d]; // BUG
    }
    out[threadIdx.x] = s[threadIdx.x];
}

__global__ void scan_in_place_ok(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    for (unsigned d = 1; d < 64; d *= 2) {
        __syncthreads();
        int left = threadIdx.x >= d ? s[threadIdx.x - d] : 0;
        __syncthreads();
        s[threadIdx.x] += left;
    }
    out[threadIdx.x] = s[threadIdx.x];
}

__global__ void syncwarp_for_a_block(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x]; // OTHER
    __syncwarp();
    out[threadIdx.x] = s[(threadIdx.x + 32) % 64]; // BUG
}

__global__ void syncwarp_for_a_block_ok(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = s[threadIdx.x ^ 31];
}

__global__ void shared_flag_no_fence(const int *in, int *out) {
    __shared__ int data[32];
    __shared__ volatile int flag;
    if (threadIdx.x == 0)
        flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        data[threadIdx.x] = in[threadIdx.x]; // OTHER
        if (threadIdx.x == 0)
            flag = 1; // BUG
    } else {
        while (flag == 0) // BUG
            ;
        out[threadIdx.x - 32] = data[63 - threadIdx.x]; // BUG
    }
}

__global__ void shared_flag_no_fence_ok(const int *in, int *out) {
    __shared__ int data[32];
    __shared__ volatile int flag;
    if (threadIdx.x == 0)
        flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        data[threadIdx.x] = in[threadIdx.x];
        __threadfence_block();
        __syncwarp();
        if (threadIdx.x == 0)
            flag = 1;
    } else {
        while (flag == 0)
            ;
        __threadfence_block();
        out[threadIdx.x - 32] = data[63 - threadIdx.x];
    }
}

__global__ void slot_overwritten(const int *in, int *out) {
    __shared__ int slot[32];
    if (threadIdx.x < 32) {
        for (int k = 0; k < 2; k++) {
            slot[threadIdx.x] = in[32 * k + threadIdx.x]; // BUG
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        }
    } else {
        int sum = 0;
        for (int k = 0; k < 2; k++) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            sum += slot[63 - threadIdx.x]; // OTHER
        }
        out[threadIdx.x - 32] = sum;
    }
}

__global__ void slot_overwritten_ok(const int *in, int *out) {
    __shared__ int slot[32];
    if (threadIdx.x < 32) {
        for (int k = 0; k < 2; k++) {
            if (k > 0)
                asm volatile("bar.sync 2, 64;" ::: "memory");
            slot[threadIdx.x] = in[32 * k + threadIdx.x];
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        }
    } else {
        int sum = 0;
        for (int k = 0; k < 2; k++) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            sum += slot[63 - threadIdx.x];
            if (k == 0)
                asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
        out[threadIdx.x - 32] = sum;
    }
}

__global__ void write_after_arrival(const int *in, int *out) {
    __shared__ unsigned long long object;
    __shared__ int s[64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&object), done = 0;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    unsigned long long token;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
    s[threadIdx.x] = in[threadIdx.x]; // OTHER
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at), "l"(token) : "memory");
    out[threadIdx.x] = s[63 - threadIdx.x]; // BUG
}

__global__ void write_after_arrival_ok(const int *in, int *out) {
    __shared__ unsigned long long object;
    __shared__ int s[64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&object), done = 0;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    s[threadIdx.x] = in[threadIdx.x];
    unsigned long long token;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at), "l"(token) : "memory");
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void scratch_reused(const int *in, int *out) {
    __shared__ int sums[2];
    int x = in[threadIdx.x], results[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        int sum = __reduce_add_sync(0xffffffff, k ? x * x : x);
        if (threadIdx.x % 32 == 0)
            sums[threadIdx.x / 32] = sum; // BUG
        __syncthreads();
        results[k] = sums[0] + sums[1]; // OTHER
    }
    out[threadIdx.x] = results[0] - results[1];
}

__global__ void scratch_reused_ok(const int *in, int *out) {
    __shared__ int sums[2];
    int x = in[threadIdx.x], results[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        int sum = __reduce_add_sync(0xffffffff, k ? x * x : x);
        if (threadIdx.x % 32 == 0)
            sums[threadIdx.x / 32] = sum;
        __syncthreads();
        results[k] = sums[0] + sums[1];
        __syncthreads();
    }
    out[threadIdx.x] = results[0] - results[1];
}

__global__ void barrier_of_too_few(const int *in, int *out) {
    __shared__ int s[96];
    s[threadIdx.x] = in[threadIdx.x]; // OTHER
    if (threadIdx.x < 64)
        asm volatile("bar.sync 1, 64;" ::: "memory");
    out[threadIdx.x] = s[95 - threadIdx.x]; // BUG
}

__global__ void barrier_of_too_few_ok(const int *in, int *out) {
    __shared__ int s[96];
    s[threadIdx.x] = in[threadIdx.x];
    asm volatile("bar.sync 1, 96;" ::: "memory");
    out[threadIdx.x] = s[95 - threadIdx.x];
}

} // extern "C"
