// Accesses of global memory that nothing orders, and for each the same work done right. Launches: cases.json.

extern "C" {

__global__ void global_within_block(int *scratch, int *out) {
    scratch[threadIdx.x] = threadIdx.x * 3; // OTHER
    out[threadIdx.x] = scratch[63 - threadIdx.x]; // BUG
}

__global__ void global_within_block_ok(int *scratch, int *out) {
    scratch[threadIdx.x] = threadIdx.x * 3;
    __syncthreads();
    out[threadIdx.x] = scratch[63 - threadIdx.x];
}

__global__ void lost_updates(const int *in, int *sum) {
    int mine = __reduce_add_sync(0xffffffff, in[32 * blockIdx.x + threadIdx.x]);
    if (threadIdx.x == 0)
        *sum += mine; // BUG
}

__global__ void lost_updates_ok(const int *in, int *sum) {
    int mine = __reduce_add_sync(0xffffffff, in[32 * blockIdx.x + threadIdx.x]);
    if (threadIdx.x == 0)
        atomicAdd(sum, mine);
}

__global__ void volatile_lost_updates(volatile unsigned *count) {
    if (threadIdx.x == 0)
        *count = *count + 1; // BUG
}

__global__ void volatile_lost_updates_ok(volatile unsigned *count) {
    if (threadIdx.x == 0)
        atomicAdd((unsigned *)count, 1u);
}

__global__ void block_scope_atomics(const int *in, int *sum) {
    atomicAdd_block(sum, in[32 * blockIdx.x + threadIdx.x]); // BUG
}

__global__ void block_scope_atomics_ok(const int *in, int *sum) {
    atomicAdd(sum, in[32 * blockIdx.x + threadIdx.x]);
}

__global__ void block_scope_fence(int *data, volatile unsigned *flag, int *out) {
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x + 1; // OTHER
        __threadfence_block();
        __syncwarp();
        if (threadIdx.x == 0)
            *flag = 1; // BUG
    } else {
        while (*flag == 0) // BUG
            ;
        __threadfence_block(); // BUG
        out[threadIdx.x] = data[threadIdx.x]; // BUG
    }
}

__global__ void block_scope_fence_ok(int *data, volatile unsigned *flag, int *out) {
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x + 1;
        __threadfence();
        __syncwarp();
        if (threadIdx.x == 0)
            *flag = 1;
    } else {
        while (*flag == 0)
            ;
        __threadfence();
        out[threadIdx.x] = data[threadIdx.x];
    }
}

__global__ void flag_without_fence(int *data, volatile unsigned *flag, int *out) {
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x + 1; // OTHER
        __syncwarp();
        if (threadIdx.x == 0)
            *flag = 1; // BUG
    } else {
        while (*flag == 0) // BUG
            ;
        out[threadIdx.x] = data[threadIdx.x]; // BUG
    }
}

__global__ void flag_without_fence_ok(int *data, unsigned *flag, int *out) {
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x + 1;
        __syncwarp();
        if (threadIdx.x == 0)
            asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
        unsigned seen;
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        while (seen == 0);
        out[threadIdx.x] = data[threadIdx.x];
    }
}

__global__ void read_only_path(int *scratch, int *out) {
    scratch[threadIdx.x] = threadIdx.x * 5; // OTHER
    __syncthreads();
    int value;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(value) : "l"(scratch + 63 - threadIdx.x)); // BUG
    out[threadIdx.x] = value;
}

__global__ void read_only_path_ok(int *scratch, int *out) {
    scratch[threadIdx.x] = threadIdx.x * 5;
    __syncthreads();
    int value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(scratch + 63 - threadIdx.x));
    out[threadIdx.x] = value;
}

__global__ void last_block_no_fence(const int *in, int *partial, unsigned *done, int *out) {
    int sum = __reduce_add_sync(0xffffffff, in[32 * blockIdx.x + threadIdx.x]);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum; // OTHER
        if (atomicAdd(done, 1u) == gridDim.x - 1) { // BUG
            int total = 0;
            for (unsigned k = 0; k < gridDim.x; k++)
                total += partial[k]; // BUG
            *out = total;
        }
    }
}

__global__ void last_block_no_fence_ok(const int *in, int *partial, unsigned *done, int *out) {
    int sum = __reduce_add_sync(0xffffffff, in[32 * blockIdx.x + threadIdx.x]);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        if (atomicAdd(done, 1u) == gridDim.x - 1) {
            __threadfence();
            int total = 0;
            for (unsigned k = 0; k < gridDim.x; k++)
                total += ((volatile int *)partial)[k];
            *out = total;
        }
    }
}

__global__ void unlock_by_plain_store(unsigned *lock, int *account) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0u, 1u) != 0)
            ;
        account[0] += 1; // OTHER
        account[1] -= 1; // OTHER
        *lock = 0; // BUG
    }
}

__global__ void unlock_by_plain_store_ok(unsigned *lock, int *account) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0u, 1u) != 0)
            ;
        __threadfence();
        ((volatile int *)account)[0] += 1;
        ((volatile int *)account)[1] -= 1;
        __threadfence();
        atomicExch(lock, 0u);
    }
}

__global__ void stencil_in_place(int *data) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int right = i + 1 < gridDim.x * blockDim.x ? data[i + 1] : 0; // OTHER
    __syncthreads();
    data[i] += right; // BUG
}

__global__ void stencil_in_place_ok(const int *data, int *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    int right = i + 1 < gridDim.x * blockDim.x ? data[i + 1] : 0;
    out[i] = data[i] + right;
}

__global__ void ticket_read_plainly(unsigned *next, unsigned *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (*next < 64) { // OTHER
        unsigned ticket = atomicAdd(next, 1u); // BUG
        out[i] = ticket;
    }
}

__global__ void ticket_read_plainly_ok(unsigned *next, unsigned *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned ticket = atomicAdd(next, 1u);
    if (ticket < 64)
        out[i] = ticket;
}

__global__ void global_within_warp(int *data, int *out) {
    if (threadIdx.x & 1)
        data[threadIdx.x] = data[threadIdx.x] * 7; // OTHER
    else
        out[threadIdx.x] = data[threadIdx.x + 1]; // BUG
}

__global__ void global_within_warp_ok(int *data, int *out) {
    if (threadIdx.x & 1)
        data[threadIdx.x] = data[threadIdx.x] * 7;
    __syncwarp();
    if (!(threadIdx.x & 1))
        out[threadIdx.x] = data[threadIdx.x + 1];
}

__global__ void any_position(int *found) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 50 == 7)
        found[0] = i; // BUG
}

__global__ void any_position_ok(int *found) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 50 == 7)
        atomicMax(found, (int)i);
}

} // extern "C"
