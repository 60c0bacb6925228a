// Calls: recursion, function pointers, virtual functions, jump tables, functions in sections of their own.
extern "C" __device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __device__ __noinline__ float scale(float x) { return x * 3.0f; }
extern "C" __device__ __noinline__ float shift(float x) { return x + 3.0f; }
extern "C" __device__ __noinline__ float root(float x) { return sqrtf(x) / (x + 1.0f); }
typedef float (*Step)(float);
__device__ Step table[3] = {scale, shift, root};
extern "C" __global__ void recurse(int *out, int n) { out[threadIdx.x] = fib(n + threadIdx.x); }
extern "C" __global__ void indirect(float *data, const int *which) {
    data[threadIdx.x] = table[which[threadIdx.x]](data[threadIdx.x]);
}
extern "C" __global__ void given(float *data, Step step) { data[threadIdx.x] = step(data[threadIdx.x]); }
struct Shape {
    float a, b;
    __device__ virtual float area() const { return 0; }
};
struct Square : Shape {
    __device__ float area() const override { return a * a; }
};
struct Ring : Shape {
    __device__ float area() const override { return a * a - b * b + scale(a); }
};
extern "C" __global__ void shapes(float *out, int n) {
    Square s;
    Ring r;
    s.a = n, r.a = n, r.b = 2;
    Shape *shape = threadIdx.x & 1 ? (Shape *)&s : (Shape *)&r;
    out[threadIdx.x] = shape->area();
}
extern "C" __global__ void jump(int *out, const int *op, int a, int b) {
    int r = 0;
    switch (op[threadIdx.x]) {
    case 0: r = a + b; break;
    case 1: r = a - b; break;
    case 2: r = a * b; break;
    case 3: r = a / (b | 1); break;
    case 4: r = a ^ b; out[64] = r; break;
    case 5: r = __popc(a); break;
    case 6: r = __clz(b); break;
    case 7: r = min(a, b); out[32] = 4; break;
    case 8: r = fib(a); break;
    case 9: r = a << (b & 31); break;
    case 10: r = a % (b | 1); break;
    default: return;
    }
    out[threadIdx.x] = r;
}
extern "C" __global__ void uniform_jump(int *out, int op, int a) {
    switch (op) {
    case 0: out[0] = a; break;
    case 1: out[1] = a * 7; break;
    case 2: out[2] = a + 7; break;
    case 3: out[3] = a - 7; break;
    case 4: out[4] = a ^ 7; break;
    case 5: out[5] = __brev(a); break;
    case 6: out[6] = fib(a); break;
    }
}
extern "C" __global__ void quicksort(int *data, int n) {
    struct Sort {
        __device__ static void run(int *a, int lo, int hi) {
            if (lo >= hi) return;
            int pivot = a[hi], i = lo;
            for (int j = lo; j < hi; j++)
                if (a[j] < pivot) {
                    int t = a[i];
                    a[i++] = a[j];
                    a[j] = t;
                }
            a[hi] = a[i];
            a[i] = pivot;
            run(a, lo, i - 1);
            run(a, i + 1, hi);
        }
    };
    Sort::run(data + threadIdx.x * n, 0, n - 1);
}
