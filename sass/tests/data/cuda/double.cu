// Double precision, and the slow paths of the mathematics library.
extern "C" __global__ void arithmetic(double *d, float *f, long long *l) {
    double x = d[threadIdx.x], y = d[32 + threadIdx.x];
    d[0] = x / y, d[1] = sqrt(x), d[2] = fma(x, y, 1.0), d[3] = fmax(x, -y), d[4] = fmin(fabs(x), 2.5);
    d[5] = rint(x), d[6] = floor(y), d[7] = ceil(x), d[8] = trunc(y), d[9] = 1.0 / x, d[10] = rsqrt(x);
    d[11] = __dadd_ru(x, y), d[12] = __dmul_rd(x, y), d[13] = __fma_rz(x, y, x), d[14] = x < y ? x : 7.0;
    f[0] = x, f[1] = __double2float_ru(y), l[0] = x, l[1] = __double2ll_rd(y), d[15] = l[3], d[16] = (int)f[9];
    d[17] = __hiloint2double(l[5], l[6]), l[7] = __double2hiint(x), d[18] = (unsigned long long)l[8];
    d[19] = isnan(x) ? 1.0 : isinf(y) ? 2.0 : copysign(x, y);
}
extern "C" __global__ void library(double *d) {
    double x = d[threadIdx.x];
    d[0] = sin(x), d[1] = exp(x), d[2] = log(x), d[3] = pow(x, 1.7), d[4] = atan2(x, 2.0), d[5] = erf(x), d[6] = cbrt(x);
    d[7] = tgamma(x), d[8] = fmod(x, 3.7), d[9] = sinh(x);
}
extern "C" __global__ void library_float(float *f) {
    float x = f[threadIdx.x];
    f[0] = sinf(x), f[1] = expf(x), f[2] = logf(x), f[3] = powf(x, 1.7f), f[4] = atan2f(x, 2.0f), f[5] = erff(x);
    f[6] = fmodf(x, 3.7f), f[7] = tanhf(x), f[8] = __sinf(x), f[9] = __expf(x), f[10] = x / (x + 1), f[11] = lgammaf(x);
    f[12] = normcdff(x), f[13] = j0f(x), f[14] = __fdividef(x, 3), f[15] = __fsqrt_rz(x), f[16] = __frcp_rd(x);
    f[17] = __saturatef(x), f[18] = rintf(x), f[19] = truncf(x), f[20] = __fmaf_ru(x, x, x), f[21] = __tanf(x);
}
