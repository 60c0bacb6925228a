// Wrong use of barriers, masks and waits, and for each the same work done right. Launches: cases.json.

extern "C" {

__global__ void barrier_in_one_arm(const int *in, int *out) {
    __shared__ int s[32];
    s[threadIdx.x] = in[threadIdx.x];
    if (in[threadIdx.x] < 16)
        __syncthreads(); // BUG
    out[threadIdx.x] = s[threadIdx.x] * 2;
}

__global__ void barrier_in_one_arm_ok(const int *in, int *out) {
    __shared__ int s[32];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x] * 2;
}

__global__ void early_return(const int *in, int *out, unsigned n) {
    __shared__ int s[64];
    if (threadIdx.x >= n)
        return;
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads(); // BUG
    out[threadIdx.x] = s[n - 1 - threadIdx.x];
}

__global__ void early_return_ok(const int *in, int *out, unsigned n) {
    __shared__ int s[64];
    if (threadIdx.x < n)
        s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n)
        out[threadIdx.x] = s[n - 1 - threadIdx.x];
}

__global__ void barrier_in_both_arms(const int *in, int *out) {
    __shared__ int s[64];
    if (in[threadIdx.x] & 1) {
        s[threadIdx.x] = in[threadIdx.x] * 3;
        asm volatile("bar.sync 0;" ::: "memory"); // BUG
        out[threadIdx.x] = s[threadIdx.x ^ 1] + 1;
    } else {
        s[threadIdx.x] = in[threadIdx.x] + 5;
        asm volatile("bar.sync 0;" ::: "memory"); // BUG
        out[threadIdx.x] = s[threadIdx.x ^ 1] - 1;
    }
}

__global__ void barrier_in_both_arms_ok(const int *in, int *out) {
    __shared__ int s[64];
    bool odd = in[threadIdx.x] & 1;
    s[threadIdx.x] = odd ? in[threadIdx.x] * 3 : in[threadIdx.x] + 5;
    asm volatile("bar.sync 0;" ::: "memory");
    out[threadIdx.x] = s[threadIdx.x ^ 1] + (odd ? 1 : -1);
}

__global__ void barrier_in_lanes_loop(const int *in, int *out) {
    __shared__ int s[32];
    s[threadIdx.x] = 0;
    for (int k = 0; k < (in[threadIdx.x] & 3); k++) {
        s[threadIdx.x] += k;
        __syncthreads(); // BUG
    }
    out[threadIdx.x] = s[threadIdx.x];
}

__global__ void barrier_in_lanes_loop_ok(const int *in, int *out) {
    __shared__ int s[32];
    s[threadIdx.x] = 0;
    for (int k = 0; k < 3; k++) {
        if (k < (in[threadIdx.x] & 3))
            s[threadIdx.x] += k;
        __syncthreads();
    }
    out[threadIdx.x] = s[threadIdx.x];
}

__global__ void count_never_reached(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    asm volatile("bar.sync 1, 96;" ::: "memory"); // BUG
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void count_never_reached_ok(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    asm volatile("bar.sync 1, 64;" ::: "memory");
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void count_not_of_warps(const int *in, int *out, unsigned threads) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < threads)
        asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory"); // BUG
    out[threadIdx.x] = s[threadIdx.x];
}

__global__ void count_not_of_warps_ok(const int *in, int *out, unsigned threads) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < threads)
        asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
    out[threadIdx.x] = s[threadIdx.x];
}

__global__ void syncwarp_of_exited(const int *in, int *out, unsigned n) {
    __shared__ int s[32];
    if (threadIdx.x >= n)
        return;
    s[threadIdx.x] = in[threadIdx.x];
    __syncwarp(0xffffffff); // BUG
    out[threadIdx.x] = s[n - 1 - threadIdx.x];
}

__global__ void syncwarp_of_exited_ok(const int *in, int *out, unsigned n) {
    __shared__ int s[32];
    unsigned mask = __ballot_sync(0xffffffff, threadIdx.x < n);
    if (threadIdx.x >= n)
        return;
    s[threadIdx.x] = in[threadIdx.x];
    __syncwarp(mask);
    out[threadIdx.x] = s[n - 1 - threadIdx.x];
}

__global__ void syncwarp_of_others(const int *in, int *out, unsigned low) {
    __shared__ int s[32];
    s[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < 16) {
        __syncwarp(~low); // BUG
        out[threadIdx.x] = s[15 - threadIdx.x];
    }
}

__global__ void syncwarp_of_others_ok(const int *in, int *out, unsigned low) {
    __shared__ int s[32];
    s[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < 16) {
        __syncwarp(low);
        out[threadIdx.x] = s[15 - threadIdx.x];
    }
}

__global__ void shuffle_from_inactive(const int *in, int *out) {
    int x = in[threadIdx.x];
    if (threadIdx.x < 16)
        x = __shfl_sync(0x0000ffff, x, threadIdx.x + 16); // BUG
    out[threadIdx.x] = x;
}

__global__ void shuffle_from_inactive_ok(const int *in, int *out) {
    int x = in[threadIdx.x];
    int other = __shfl_sync(0xffffffff, x, (threadIdx.x + 16) & 31);
    out[threadIdx.x] = threadIdx.x < 16 ? other : x;
}

__global__ void shuffle_names_waiting(const int *in, int *out) {
    int x = in[threadIdx.x];
    if (x % 32 < 16)
        x += __shfl_down_sync(0xffffffff, x, 1); // BUG
    else
        asm volatile("bar.sync 0;" ::: "memory"); // OTHER
    out[threadIdx.x] = x;
}

__global__ void shuffle_names_waiting_ok(const int *in, int *out) {
    int x = in[threadIdx.x];
    int right = __shfl_down_sync(0xffffffff, x, 1);
    if (x % 32 < 16)
        x += right;
    asm volatile("bar.sync 0;" ::: "memory");
    out[threadIdx.x] = x;
}

__global__ void votes_of_two_arms(const int *in, unsigned *out) {
    int x = in[threadIdx.x];
    if (x & 4)
        out[threadIdx.x] = __ballot_sync(0xffffffff, x & 1) + 1;
    else
        out[threadIdx.x] = __ballot_sync(0xffffffff, x & 2) * 3;
}

__global__ void votes_of_two_arms_ok(const int *in, unsigned *out) {
    int x = in[threadIdx.x];
    unsigned arm = __ballot_sync(0xffffffff, x & 4);
    if (x & 4)
        out[threadIdx.x] = __ballot_sync(arm, x & 1) + 1;
    else
        out[threadIdx.x] = __ballot_sync(~arm, x & 2) * 3;
}

__global__ void parity_of_phase_before(const int *in, int *out) {
    __shared__ unsigned long long object;
    __shared__ int s[64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&object), done = 0;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    s[threadIdx.x] = in[threadIdx.x]; // OTHER
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory");
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 1; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory"); // BUG
    out[threadIdx.x] = s[63 - threadIdx.x]; // BUG
}

__global__ void parity_of_phase_before_ok(const int *in, int *out) {
    __shared__ unsigned long long object;
    __shared__ int s[64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&object), done = 0;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    s[threadIdx.x] = in[threadIdx.x];
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory");
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory");
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void parity_not_flipped(const int *in, int *out) {
    __shared__ unsigned long long object;
    __shared__ int s[2][64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&object);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < 2; k++) {
        unsigned done = 0;
        s[k][threadIdx.x] = in[64 * k + threadIdx.x]; // OTHER
        asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory");
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory"); // BUG
        sum += s[k][63 - threadIdx.x]; // BUG
    }
    out[threadIdx.x] = sum;
}

__global__ void parity_not_flipped_ok(const int *in, int *out) {
    __shared__ unsigned long long object;
    __shared__ int s[2][64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&object);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < 2; k++) {
        unsigned done = 0;
        s[k][threadIdx.x] = in[64 * k + threadIdx.x];
        asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory");
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at), "r"(k & 1) : "memory");
        sum += s[k][63 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}

__global__ void arrivals_never_reached(const int *in, int *out) {
    __shared__ unsigned long long object;
    unsigned at = (unsigned)__cvta_generic_to_shared(&object), done = 0;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 65;" ::"r"(at) : "memory");
    __syncthreads();
    unsigned long long token;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at), "l"(token) : "memory"); // BUG
    out[threadIdx.x] = in[threadIdx.x];
}

__global__ void arrivals_never_reached_ok(const int *in, int *out) {
    __shared__ unsigned long long object;
    unsigned at = (unsigned)__cvta_generic_to_shared(&object), done = 0;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    unsigned long long token;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at), "l"(token) : "memory");
    out[threadIdx.x] = in[threadIdx.x];
}

__global__ void mbarrier_without_init(unsigned *out) {
    __shared__ unsigned long long object;
    unsigned at = (unsigned)__cvta_generic_to_shared(&object);
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory"); // BUG
    out[threadIdx.x] = threadIdx.x;
}

__global__ void mbarrier_without_init_ok(unsigned *out) {
    __shared__ unsigned long long object;
    unsigned at = (unsigned)__cvta_generic_to_shared(&object);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(at) : "memory");
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at) : "memory");
    out[threadIdx.x] = threadIdx.x;
}

__global__ void producer_returns(const int *in, int *out, unsigned work) {
    __shared__ int slot[32];
    if (threadIdx.x < 32) {
        if (work == 0)
            return;
        slot[threadIdx.x] = in[threadIdx.x];
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory"); // BUG
        out[threadIdx.x - 32] = work ? slot[63 - threadIdx.x] : 0;
    }
}

__global__ void producer_returns_ok(const int *in, int *out, unsigned work) {
    __shared__ int slot[32];
    if (threadIdx.x < 32) {
        if (work != 0)
            slot[threadIdx.x] = in[threadIdx.x];
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[threadIdx.x - 32] = work ? slot[63 - threadIdx.x] : 0;
    }
}

__global__ void grid_never_complete(unsigned *arrived, int *out) {
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned *)arrived < gridDim.x + 1) // BUG
            ;
        __threadfence();
    }
    __syncthreads();
    out[blockIdx.x] = 1;
}

__global__ void grid_never_complete_ok(unsigned *arrived, int *out) {
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned *)arrived < gridDim.x)
            ;
        __threadfence();
        out[blockIdx.x] = 1;
    }
    __syncthreads();
}

__global__ void two_barriers(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;" ::: "memory"); // BUG
    else
        asm volatile("bar.sync 2, 64;" ::: "memory"); // BUG
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void two_barriers_ok(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;" ::: "memory");
    else
        asm volatile("bar.sync 1, 64;" ::: "memory");
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void lock_kept(unsigned *lock, int *data) {
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(lock, 0u, 1u) != 0) // BUG
            ;
        __threadfence();
        if (((volatile int *)data)[threadIdx.x] % 2 == 0)
            return;
        ((volatile int *)data)[0] += 1;
        __threadfence();
        atomicExch(lock, 0u);
    }
}

__global__ void lock_kept_ok(unsigned *lock, int *data) {
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(lock, 0u, 1u) != 0)
            ;
        __threadfence();
        if (((volatile int *)data)[threadIdx.x] % 2 != 0)
            ((volatile int *)data)[0] += 1;
        __threadfence();
        atomicExch(lock, 0u);
    }
}

__global__ void barrier_in_warps_loop(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    int sum = 0;
    for (unsigned k = 0; k <= threadIdx.x / 32; k++) {
        __syncthreads(); // BUG
        sum += s[(threadIdx.x + k) % 64];
    }
    out[threadIdx.x] = sum;
}

__global__ void barrier_in_warps_loop_ok(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = in[threadIdx.x];
    int sum = 0;
    for (unsigned k = 0; k < 2; k++) {
        __syncthreads();
        if (k <= threadIdx.x / 32)
            sum += s[(threadIdx.x + k) % 64];
    }
    out[threadIdx.x] = sum;
}

__global__ void reduction_in_divergence(const int *in, int *out) {
    int sum = 0;
    for (int k = 0; k < in[threadIdx.x] % 5; k++)
        sum += __reduce_add_sync(0xffffffff, k); // BUG
    __syncwarp();
    atomicAdd(out, sum);
}

__global__ void reduction_in_divergence_ok(const int *in, int *out) {
    int sum = 0, rounds = in[threadIdx.x] % 5;
    for (int k = 0; k < 5; k++) {
        int all = __reduce_add_sync(0xffffffff, k < rounds ? k : 0);
        if (k < rounds)
            sum += all;
    }
    __syncwarp();
    atomicAdd(out, sum);
}

} // extern "C"
