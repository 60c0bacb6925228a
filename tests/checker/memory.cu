// Accesses of memory that is not the kernel's, and for each the same work done right. Launches: cases.json.

extern "C" {

__global__ void past_end_by_one(unsigned *out, unsigned n) {
    unsigned i = threadIdx.x + 1;
    if (i <= n)
        out[i] = i; // BUG
}

__global__ void past_end_by_one_ok(unsigned *out, unsigned n) {
    unsigned i = threadIdx.x;
    if (i < n)
        out[i] = i + 1;
}

__global__ void past_end_by_stride(unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[2 * i] = i; // BUG
}

__global__ void past_end_by_stride_ok(unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * i < n)
        out[2 * i] = i;
}

__global__ void before_begin(const int *in, int *out) {
    int i = threadIdx.x;
    out[i] = in[i] - in[i - 1]; // BUG
}

__global__ void before_begin_ok(const int *in, int *out) {
    int i = threadIdx.x;
    out[i] = in[i] - (i > 0 ? in[i - 1] : 0);
}

__global__ void vector_tail(const float4 *in, float *out, unsigned n) {
    unsigned i = threadIdx.x;
    if (4 * i < n) {
        float4 v = in[i]; // BUG
        out[i] = v.x + v.y + v.z + v.w;
    }
}

__global__ void vector_tail_ok(const float4 *in, float *out, unsigned n) {
    unsigned i = threadIdx.x;
    if (4 * i + 3 < n) {
        float4 v = in[i];
        out[i] = v.x + v.y + v.z + v.w;
    } else if (4 * i < n) {
        float sum = 0;
        for (unsigned k = 4 * i; k < n; k++)
            sum += ((const float *)in)[k];
        out[i] = sum;
    }
}

__global__ void misaligned_vector(const float *in, float *out) {
    float4 v = *(const float4 *)(in + 1 + 4 * threadIdx.x); // BUG
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

__global__ void misaligned_vector_ok(const float *in, float *out) {
    const float *v = in + 1 + 4 * threadIdx.x;
    out[threadIdx.x] = v[0] + v[1] + v[2] + v[3];
}

__global__ void misaligned_word(const char *records, int *out) {
    out[threadIdx.x] = *(const int *)(records + 5 * threadIdx.x + 1); // BUG
}

__global__ void misaligned_word_ok(const char *records, int *out) {
    const unsigned char *at = (const unsigned char *)records + 5 * threadIdx.x + 1;
    out[threadIdx.x] = at[0] | at[1] << 8 | at[2] << 16 | at[3] << 24;
}

__global__ void freed_buffer(const int *in, int *out) {
    out[threadIdx.x] = 2 * in[threadIdx.x]; // BUG
}

__global__ void freed_buffer_ok(const int *in, int *out) {
    out[threadIdx.x] = 2 * in[threadIdx.x];
}

__global__ void null_pointer(const int *in, const int *bias, int *out) {
    out[threadIdx.x] = in[threadIdx.x] + bias[threadIdx.x]; // BUG
}

__global__ void null_pointer_ok(const int *in, const int *bias, int *out) {
    out[threadIdx.x] = in[threadIdx.x] + (bias ? bias[threadIdx.x] : 0);
}

__global__ void wrong_element_size(const short *in, int *out) {
    out[threadIdx.x] = ((const int *)in)[threadIdx.x]; // BUG
}

__global__ void wrong_element_size_ok(const short *in, int *out) {
    out[threadIdx.x] = in[threadIdx.x];
}

__global__ void atomic_out_of_range(const unsigned *in, unsigned *bins) {
    atomicAdd(&bins[in[threadIdx.x]], 1u); // BUG
}

__global__ void atomic_out_of_range_ok(const unsigned *in, unsigned *bins) {
    atomicAdd(&bins[min(in[threadIdx.x], 31u)], 1u);
}

__global__ void shared_past_block(int *out, unsigned stride) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x * stride]; // BUG
}

__global__ void shared_past_block_ok(int *out, unsigned stride) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x * stride];
}

__global__ void shared_into_next_array(int *out, unsigned n) {
    __shared__ int first[64], second[64];
    second[threadIdx.x] = 7;
    first[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x + 4 < n)
        first[threadIdx.x + 4] = 2; // BUG
    __syncthreads();
    out[threadIdx.x] = first[63 - threadIdx.x] + second[63 - threadIdx.x];
}

__global__ void shared_into_next_array_ok(int *out, unsigned n) {
    __shared__ int first[64], second[64];
    second[threadIdx.x] = 7;
    first[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x + 4 < n)
        first[threadIdx.x + 4] = 2;
    __syncthreads();
    out[threadIdx.x] = first[63 - threadIdx.x] + second[63 - threadIdx.x];
}

__global__ void dynamic_too_small(int *out) {
    extern __shared__ int dynamic[];
    dynamic[threadIdx.x] = threadIdx.x; // BUG
    __syncthreads();
    out[threadIdx.x] = dynamic[63 - threadIdx.x]; // BUG
}

__global__ void dynamic_too_small_ok(int *out) {
    extern __shared__ int dynamic[];
    dynamic[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = dynamic[63 - threadIdx.x];
}

__global__ void local_overrun_by_one(const int *in, int *out, unsigned n) {
    int window[8];
    for (unsigned k = 0; k < n; k++)
        window[k] = in[threadIdx.x + k]; // BUG
    out[threadIdx.x] = window[in[threadIdx.x] & 7];
}

__global__ void local_overrun_by_one_ok(const int *in, int *out, unsigned n) {
    int window[8];
    for (unsigned k = 0; k < n; k++)
        window[k] = in[threadIdx.x + k];
    out[threadIdx.x] = window[in[threadIdx.x] & 7];
}

__global__ void local_far(const int *in, int *out) {
    int counts[8] = {0};
    for (int k = 0; k < 16; k++)
        counts[in[k] * 10007]++; // BUG
    out[threadIdx.x] = counts[in[threadIdx.x] & 7];
}

__global__ void local_far_ok(const int *in, int *out) {
    int counts[8] = {0};
    for (int k = 0; k < 16; k++)
        counts[in[k] & 7]++;
    out[threadIdx.x] = counts[in[threadIdx.x] & 7];
}

__global__ void cp_async_past_end(const int4 *in, int *out) {
    __shared__ int4 tile[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory"); // BUG
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = tile[threadIdx.x].x;
}

__global__ void cp_async_past_end_ok(const int4 *in, int *out) {
    __shared__ int4 tile[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    unsigned bytes = threadIdx.x < 31 ? 16 : 0;
    const int4 *from = in + min(threadIdx.x, 30u);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = tile[threadIdx.x].x;
}

__global__ void cp_async_shared_past(const int4 *in, int *out) {
    extern __shared__ int4 copied[];
    unsigned to = (unsigned)__cvta_generic_to_shared(&copied[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory"); // BUG
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = copied[threadIdx.x & 31].x;
}

__global__ void cp_async_shared_past_ok(const int4 *in, int *out) {
    extern __shared__ int4 copied[];
    unsigned to = (unsigned)__cvta_generic_to_shared(&copied[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = copied[threadIdx.x].x;
}

__global__ void pitch_in_elements(const int *in, int *out, unsigned pitch) {
    out[threadIdx.y * 8 + threadIdx.x] = in[threadIdx.y * pitch + threadIdx.x]; // BUG
}

__global__ void pitch_in_elements_ok(const int *in, int *out, unsigned pitch) {
    const int *row = (const int *)((const char *)in + threadIdx.y * pitch);
    out[threadIdx.y * 8 + threadIdx.x] = row[threadIdx.x];
}

__global__ void unsigned_wraps(const int *in, int *out, unsigned shift) {
    unsigned from = threadIdx.x - shift;
    out[threadIdx.x] = in[from]; // BUG
}

__global__ void unsigned_wraps_ok(const int *in, int *out, unsigned shift) {
    out[threadIdx.x] = threadIdx.x >= shift ? in[threadIdx.x - shift] : 0;
}

__global__ void product_overflows(const char *in, int *out, int stride) {
    int at = threadIdx.x * stride;
    out[threadIdx.x] = in[at / 0x1000000]; // BUG
}

__global__ void product_overflows_ok(const char *in, int *out, int stride) {
    long long at = (long long)threadIdx.x * stride;
    out[threadIdx.x] = in[at / 0x1000000];
}

__global__ void bytes_as_elements(const int *in, int *out, unsigned bytes) {
    int sum = 0;
    for (unsigned k = threadIdx.x; k < bytes; k += blockDim.x)
        sum += in[k]; // BUG
    out[threadIdx.x] = sum;
}

__global__ void bytes_as_elements_ok(const int *in, int *out, unsigned bytes) {
    int sum = 0;
    for (unsigned k = threadIdx.x; k < bytes / sizeof(int); k += blockDim.x)
        sum += in[k];
    out[threadIdx.x] = sum;
}

__global__ void other_buffers_index(const unsigned *rows, const int *table, int *out) {
    unsigned row = rows[threadIdx.x];
    out[threadIdx.x] = table[row]; // BUG
}

__global__ void other_buffers_index_ok(const unsigned *rows, const int *table, int *out) {
    unsigned row = rows[threadIdx.x] / 4;
    out[threadIdx.x] = table[row];
}

__global__ void rows_and_columns(const int *in, int *out) {
    unsigned x = threadIdx.x, y = threadIdx.y;
    out[x * 16 + y] = in[y * 16 + x]; // BUG
}

__global__ void rows_and_columns_ok(const int *in, int *out) {
    unsigned x = threadIdx.x, y = threadIdx.y;
    out[x * 4 + y] = in[y * 16 + x];
}

__global__ void end_of_list(const int *next, int *out) {
    int at = 0;
    for (int k = 0; k < 5; k++)
        at = next[at]; // BUG
    out[0] = at;
}

__global__ void end_of_list_ok(const int *next, int *out) {
    int at = 0;
    for (int k = 0; k < 5 && next[at] >= 0; k++)
        at = next[at];
    out[0] = at;
}

__global__ void local_address_escapes(const int *in, int *out) {
    __shared__ int *shared_pointer;
    int mine[2] = {in[threadIdx.x], in[31 - threadIdx.x]};
    if (threadIdx.x == 0)
        shared_pointer = mine;
    __syncthreads();
    out[threadIdx.x] = ((volatile int *)shared_pointer)[in[threadIdx.x] & 1]; // BUG
}

__global__ void local_address_escapes_ok(const int *in, int *out) {
    __shared__ int shared_value[2];
    if (threadIdx.x == 0) {
        shared_value[0] = in[threadIdx.x];
        shared_value[1] = in[31 - threadIdx.x];
    }
    __syncthreads();
    out[threadIdx.x] = shared_value[in[threadIdx.x] & 1];
}

__global__ void word_store_across_end(char *out, unsigned n) {
    for (unsigned k = 4 * threadIdx.x; k < n; k += 4 * blockDim.x)
        *(unsigned *)(out + k) = 0x20202020; // BUG
}

__global__ void word_store_across_end_ok(char *out, unsigned n) {
    for (unsigned k = threadIdx.x; k < n; k += blockDim.x)
        out[k] = 0x20;
}

__global__ void misaligned_atomic(unsigned *out) {
    atomicAdd((unsigned long long *)(out + 2 * threadIdx.x + 1), 1ull); // BUG
}

__global__ void misaligned_atomic_ok(unsigned *out) {
    atomicAdd((unsigned long long *)(out + 2 * threadIdx.x), 1ull);
}

__global__ void shared_before_begin(int *out, unsigned back) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[(int)(threadIdx.x - back)]; // BUG
}

__global__ void shared_before_begin_ok(int *out, unsigned back) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s[(threadIdx.x - back) & 63];
}

__global__ void carved_misaligned(int *out, unsigned halves) {
    extern __shared__ short carved[];
    int *words = (int *)(carved + halves);
    words[threadIdx.x] = threadIdx.x; // BUG
    __syncthreads();
    out[threadIdx.x] = words[31 - threadIdx.x]; // BUG
}

__global__ void carved_misaligned_ok(int *out, unsigned halves) {
    extern __shared__ short carved[];
    int *words = (int *)(carved + (halves + 1) / 2 * 2);
    words[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = words[31 - threadIdx.x];
}

__global__ void wild_pointer(int *const *table, int *out) {
    const int *row = table[threadIdx.x & 1];
    out[threadIdx.x] = row[threadIdx.x * 4 + 3]; // BUG
}

__global__ void wild_pointer_ok(int *const *table, int *out) {
    const int *row = table[threadIdx.x & 1];
    out[threadIdx.x] = row ? row[threadIdx.x * 4 + 3] : -1;
}

__global__ void queue_overflows(const int *in, int *queue, unsigned copies) {
    __shared__ unsigned head;
    if (threadIdx.x == 0)
        head = 0;
    __syncthreads();
    for (unsigned k = 0; k < copies; k++) {
        unsigned at = atomicAdd(&head, 1u);
        queue[at] = in[threadIdx.x]; // BUG
    }
}

__global__ void queue_overflows_ok(const int *in, int *queue, unsigned copies) {
    __shared__ unsigned head;
    if (threadIdx.x == 0)
        head = 0;
    __syncthreads();
    for (unsigned k = 0; k < copies; k++) {
        unsigned at = atomicAdd(&head, 1u);
        if (at < 64)
            queue[at] = in[threadIdx.x];
    }
}

} // extern "C"
