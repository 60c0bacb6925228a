// What the run time provides: printf, assert, the heap, clocks, traps.
extern "C" __device__ void __assertfail(const char *text, const char *file, unsigned line, const char *function, size_t size);
extern "C" __global__ void hello(int n) { printf("thread %d of %d: %f %s\n", threadIdx.x, n, 1.5 * n, "text"); }
extern "C" __global__ void checked(int *p, int n) {
    if (n <= 3) __assertfail("n > 3", "print.cu", __LINE__, "checked", 1);
    p[n] = n;
    if (n == 77) __trap();
    if (n == 78) __brkpt();
}
extern "C" __global__ void heap(int **out, int n) {
    int *p = (int *)malloc(n * sizeof(int));
    if (p) p[threadIdx.x] = n;
    out[threadIdx.x] = p;
    int *q = new int[8];
    q[n & 7] = 3;
    free(q);
}
extern "C" __global__ void clocks(long long *out) {
    long long begin = clock64();
    __nanosleep(100);
    unsigned smid, warp;
    unsigned long long timer;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer));
    out[0] = clock64() - begin;
    out[1] = clock();
    out[2] = smid + warp + timer;
}
