// Reads of what nothing has written, and for each the same work done right. Launches: cases.json.

extern "C" {

__global__ void input_unwritten(const int *in, int *out) {
    out[threadIdx.x] = in[threadIdx.x] + 1; // BUG
}

__global__ void input_unwritten_ok(const int *in, int *out) {
    out[threadIdx.x] = in[threadIdx.x] + 1;
}

__global__ void sum_not_cleared(const float *in, float *out) {
    out[threadIdx.x] += in[threadIdx.x]; // BUG
}

__global__ void sum_not_cleared_ok(const float *in, float *out) {
    float sum = 0;
    sum += in[threadIdx.x];
    out[threadIdx.x] = sum;
}

__global__ void counter_unwritten(unsigned *counter) {
    atomicAdd(counter, threadIdx.x); // BUG
}

__global__ void counter_unwritten_ok(unsigned *counter) {
    if (threadIdx.x == 0)
        *counter = 0;
    __syncthreads();
    atomicAdd(counter, threadIdx.x);
}

__global__ void short_tile(int *scratch, int *out, unsigned n) {
    unsigned i = threadIdx.x;
    if (i < n / 16 * 16)
        scratch[i] = i;
    __syncthreads();
    if (i < n)
        out[i] = scratch[n - 1 - i]; // BUG
}

__global__ void short_tile_ok(int *scratch, int *out, unsigned n) {
    unsigned i = threadIdx.x;
    if (i < n)
        scratch[i] = i;
    __syncthreads();
    if (i < n)
        out[i] = scratch[n - 1 - i];
}

__global__ void one_byte_of_word(unsigned char *scratch, unsigned *out) {
    for (int k = 0; k < 3; k++)
        scratch[4 * threadIdx.x + k] = k;
    __syncthreads();
    out[threadIdx.x] = ((volatile unsigned *)scratch)[31 - threadIdx.x]; // BUG
}

__global__ void one_byte_of_word_ok(unsigned char *scratch, unsigned *out) {
    for (int k = 0; k < 4; k++)
        scratch[4 * threadIdx.x + k] = k;
    __syncthreads();
    out[threadIdx.x] = ((volatile unsigned *)scratch)[31 - threadIdx.x];
}

struct Padded {
    char tag;
    int value;
};

__global__ void padding_as_data(Padded *records, unsigned *out) {
    records[threadIdx.x].tag = 1;
    records[threadIdx.x].value = threadIdx.x;
    __syncthreads();
    const volatile unsigned *words = (const volatile unsigned *)(records + (31 - threadIdx.x));
    out[threadIdx.x] = words[0] * 31; // BUG
}

__global__ void padding_as_data_ok(Padded *records, unsigned *out) {
    records[threadIdx.x].tag = 1;
    records[threadIdx.x].value = threadIdx.x;
    __syncthreads();
    const volatile Padded *record = records + (31 - threadIdx.x);
    out[threadIdx.x] = record->tag * 31;
}

__global__ void shared_half_written(const int *in, int *out) {
    __shared__ int s[64];
    if (threadIdx.x < 32)
        s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x]; // BUG
}

__global__ void shared_half_written_ok(const int *in, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x < 32 ? in[threadIdx.x] : 0;
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}

__global__ void shared_histogram_not_cleared(const unsigned *in, unsigned *out) {
    __shared__ unsigned bins[16];
    atomicAdd(&bins[in[threadIdx.x] & 15], 1u); // BUG
    __syncthreads();
    if (threadIdx.x < 16)
        out[threadIdx.x] = bins[threadIdx.x];
}

__global__ void shared_histogram_not_cleared_ok(const unsigned *in, unsigned *out) {
    __shared__ unsigned bins[16];
    if (threadIdx.x < 16)
        bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[threadIdx.x] & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16)
        out[threadIdx.x] = bins[threadIdx.x];
}

__global__ void local_part_written(const int *in, int *out, unsigned n) {
    int window[8];
    for (unsigned k = 0; k < n; k++)
        window[k] = in[k];
    out[threadIdx.x] = window[in[threadIdx.x] & 7]; // BUG
}

__global__ void local_part_written_ok(const int *in, int *out, unsigned n) {
    int window[8];
    for (unsigned k = 0; k < 8; k++)
        window[k] = k < n ? in[k] : 0;
    out[threadIdx.x] = window[in[threadIdx.x] & 7];
}

__global__ void variable_unset(const int *in, int *out, unsigned n) {
    int x;
    if (threadIdx.x < n)
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(in + threadIdx.x));
    out[threadIdx.x] = x; // BUG
}

__global__ void variable_unset_ok(const int *in, int *out, unsigned n) {
    int x = 0;
    if (threadIdx.x < n)
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(in + threadIdx.x));
    out[threadIdx.x] = x;
}

__global__ void slots_of_missing_warps(const int *in, int *out) {
    __shared__ int sums[8];
    int sum = __reduce_add_sync(0xffffffff, in[threadIdx.x]);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
        for (int k = 0; k < 8; k++)
            total += sums[k]; // BUG
        *out = total;
    }
}

__global__ void slots_of_missing_warps_ok(const int *in, int *out) {
    __shared__ int sums[8];
    int sum = __reduce_add_sync(0xffffffff, in[threadIdx.x]);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
        for (int k = 0; k < blockDim.x / 32; k++)
            total += sums[k];
        *out = total;
    }
}

__global__ void halo_unwritten(const int *in, int *out) {
    __shared__ int tile[66];
    unsigned i = threadIdx.x + 1;
    tile[i] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[i - 1] + tile[i] + tile[i + 1]; // BUG
}

__global__ void halo_unwritten_ok(const int *in, int *out) {
    __shared__ int tile[66];
    unsigned i = threadIdx.x + 1;
    tile[i] = in[threadIdx.x];
    if (threadIdx.x == 0)
        tile[0] = tile[65] = 0;
    __syncthreads();
    out[threadIdx.x] = tile[i - 1] + tile[i] + tile[i + 1];
}

__global__ void first_iteration(const int *in, int *out) {
    __shared__ int s[2][32];
    int sum = 0;
    for (int k = 0; k < 4; k++) {
        s[k & 1][threadIdx.x] = in[32 * k + threadIdx.x];
        __syncthreads();
        sum += s[(k + 1) & 1][31 - threadIdx.x]; // BUG
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void first_iteration_ok(const int *in, int *out) {
    __shared__ int s[2][32];
    int sum = 0;
    for (int k = 0; k < 4; k++) {
        s[k & 1][threadIdx.x] = in[32 * k + threadIdx.x];
        __syncthreads();
        if (k > 0)
            sum += s[(k + 1) & 1][31 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

__global__ void copy_left_out(const int4 *in, int *out, unsigned n) {
    __shared__ int4 tile[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    if (threadIdx.x < n)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = tile[31 - threadIdx.x].y; // BUG
}

__global__ void copy_left_out_ok(const int4 *in, int *out, unsigned n) {
    __shared__ int4 tile[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    unsigned bytes = threadIdx.x < n ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(in + threadIdx.x), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = tile[31 - threadIdx.x].y;
}

__global__ void partial_sum_missing(const int *in, int *partial, unsigned *done, int *out) {
    __shared__ bool last;
    if (blockIdx.x < 3) {
        int sum = __reduce_add_sync(0xffffffff, in[32 * blockIdx.x + threadIdx.x]);
        if (threadIdx.x == 0)
            partial[blockIdx.x] = sum;
    }
    __threadfence();
    if (threadIdx.x == 0)
        last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    if (last && threadIdx.x == 0) {
        int total = 0;
        for (unsigned k = 0; k < gridDim.x; k++)
            total += ((volatile int *)partial)[k]; // BUG
        *out = total;
    }
}

__global__ void partial_sum_missing_ok(const int *in, int *partial, unsigned *done, int *out) {
    __shared__ bool last;
    int value = blockIdx.x < 3 ? in[32 * blockIdx.x + threadIdx.x] : 0;
    int sum = __reduce_add_sync(0xffffffff, value);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
    __threadfence();
    if (threadIdx.x == 0)
        last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    if (last && threadIdx.x == 0) {
        int total = 0;
        for (unsigned k = 0; k < gridDim.x; k++)
            total += ((volatile int *)partial)[k];
        *out = total;
    }
}

__global__ void cleared_too_little(unsigned *bins, const unsigned *in, unsigned n) {
    for (unsigned k = threadIdx.x; k < n; k += blockDim.x)
        ((char *)bins)[k] = 0;
    __syncthreads();
    unsigned at = in[threadIdx.x];
    bins[at] = bins[at] + 1; // BUG
}

__global__ void cleared_too_little_ok(unsigned *bins, const unsigned *in, unsigned n) {
    for (unsigned k = threadIdx.x; k < n * 4; k += blockDim.x)
        ((char *)bins)[k] = 0;
    __syncthreads();
    unsigned at = in[threadIdx.x];
    bins[at] = bins[at] + 1;
}

__global__ void high_half_missing(unsigned long long *scratch, unsigned long long *out) {
    *(unsigned *)&scratch[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = ((volatile unsigned long long *)scratch)[31 - threadIdx.x]; // BUG
}

__global__ void high_half_missing_ok(unsigned long long *scratch, unsigned long long *out) {
    scratch[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = ((volatile unsigned long long *)scratch)[31 - threadIdx.x];
}

__global__ void three_of_four(float *points, float *out) {
    for (int k = 0; k < 3; k++)
        points[4 * threadIdx.x + k] = k;
    __syncthreads();
    float4 p = ((const float4 *)points)[15 - threadIdx.x]; // BUG
    out[threadIdx.x] = p.x + p.y + p.z + p.w;
}

__global__ void three_of_four_ok(float *points, float *out) {
    for (int k = 0; k < 4; k++)
        points[4 * threadIdx.x + k] = k;
    __syncthreads();
    float4 p = ((const float4 *)points)[15 - threadIdx.x];
    out[threadIdx.x] = p.x + p.y + p.z + p.w;
}

__global__ void shared_byte_missing(const unsigned *in, unsigned *out) {
    __shared__ unsigned packed[64];
    unsigned char *bytes = (unsigned char *)&packed[threadIdx.x];
    bytes[0] = in[threadIdx.x];
    bytes[1] = in[threadIdx.x] >> 8;
    bytes[3] = in[threadIdx.x] >> 24;
    __syncthreads();
    out[threadIdx.x] = packed[63 - threadIdx.x]; // BUG
}

__global__ void shared_byte_missing_ok(const unsigned *in, unsigned *out) {
    __shared__ unsigned packed[64];
    unsigned char *bytes = (unsigned char *)&packed[threadIdx.x];
    bytes[0] = in[threadIdx.x];
    bytes[1] = in[threadIdx.x] >> 8;
    bytes[2] = in[threadIdx.x] >> 16;
    bytes[3] = in[threadIdx.x] >> 24;
    __syncthreads();
    out[threadIdx.x] = packed[63 - threadIdx.x];
}

__global__ void part_published(int *data, unsigned *flag, int *out) {
    if (blockIdx.x == 0) {
        if (threadIdx.x < 12)
            data[threadIdx.x] = threadIdx.x;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0)
            atomicExch(flag, 1u);
    } else {
        while (atomicAdd(flag, 0u) == 0)
            ;
        __threadfence();
        out[threadIdx.x] = ((volatile int *)data)[threadIdx.x & 15]; // BUG
    }
}

__global__ void part_published_ok(int *data, unsigned *flag, int *out) {
    if (blockIdx.x == 0) {
        if (threadIdx.x < 16)
            data[threadIdx.x] = threadIdx.x;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0)
            atomicExch(flag, 1u);
    } else {
        while (atomicAdd(flag, 0u) == 0)
            ;
        __threadfence();
        out[threadIdx.x] = ((volatile int *)data)[threadIdx.x & 15];
    }
}

} // extern "C"
