// Integers: wide products, division, bit fields, video instructions.
extern "C" __global__ void wide(long long *l, unsigned long long *u, int *i, unsigned *w) {
    int n = threadIdx.x;
    l[0] = l[n] * l[n + 1], l[1] = l[n] / l[n + 2], u[0] = u[n] / u[n + 2], u[1] = u[n] % u[n + 3], l[2] = l[n] >> i[n];
    u[2] = u[n] >> w[n], u[3] = u[n] << w[n], l[3] = __mul64hi(l[n], l[n + 1]), u[4] = __umul64hi(u[n], u[n + 1]);
    i[0] = i[n] / i[n + 1], w[0] = w[n] % w[n + 1], i[1] = __mulhi(i[n], i[n + 1]), w[1] = __umulhi(w[n], w[n + 1]);
    i[2] = i[n] / 7, w[2] = w[n] / 10, l[4] = l[n] / 1000, i[3] = __mul24(i[n], i[n + 1]), w[3] = __umul24(w[n], 5);
    l[5] = (long long)i[n] * i[n + 1] + l[n + 4], u[5] = min(u[n], u[n + 1]), l[6] = max(l[n], l[n + 1]), l[7] = llabs(l[n]);
    i[4] = l[n] < l[n + 8], i[5] = u[n] >= u[n + 8];
}
extern "C" __global__ void bits(int *i, unsigned *w, unsigned long long *u) {
    int n = threadIdx.x;
    unsigned a = w[n], b = w[n + 1], c = w[n + 2];
    w[0] = __popc(a), w[1] = __clz(a), w[2] = __ffs(a), w[3] = __brev(a), w[4] = __byte_perm(a, b, c), w[5] = __popcll(u[n]);
    w[6] = __clzll(u[n]), w[7] = __ffsll(u[n]), u[1] = __brevll(u[n]), w[8] = __funnelshift_l(a, b, c), w[9] = __funnelshift_rc(a, b, c);
    w[10] = (a & b) | (~a & c), w[11] = a ^ b ^ c, w[12] = __sad(i[n], i[n + 1], c), w[13] = __usad(a, b, c), w[14] = __hadd(i[n], 3);
    w[15] = __urhadd(a, b), w[16] = __dp4a(i[n], i[n + 1], i[n + 2]), w[17] = __dp4a(a, b, c), w[18] = __dp2a_lo(i[n], i[n + 1], i[n + 2]);
    w[19] = __dp2a_hi(a, b, c), w[20] = __vadd4(a, b), w[21] = __vabsdiffu4(a, b), w[22] = __vmaxs2(a, b), w[23] = __vcmpgtu4(a, b);
    w[24] = __vsadu4(a, b), w[25] = (a >> 5) & 0x3f, i[26] = (i[n] << 3) >> 9, w[27] = abs(i[n]), w[28] = max(min(i[n], 9), -9);
    w[29] = __viaddmax_s32(i[n], i[n + 1], i[n + 2]), w[30] = __vimin3_u32(a, b, c), w[31] = __vimax_s16x2_relu(a, b);
    w[32] = __viaddmin_u16x2(a, b, c), w[33] = __vimax3_s16x2(a, b, c);
}
extern "C" __global__ void conversions(float *f, int *i, unsigned *w, long long *l, short *s, unsigned char *c) {
    int n = threadIdx.x;
    float x = f[n];
    i[0] = x, w[0] = x, l[0] = x, s[0] = x, c[0] = x, f[0] = i[n], f[1] = w[n], f[2] = l[n], f[3] = s[n], f[4] = c[n];
    i[1] = __float2int_rn(x), i[2] = __float2int_ru(x), w[3] = __float2uint_rd(x), l[3] = __float2ll_rz(x);
    f[5] = __int2float_rz(i[n]), f[6] = __uint2float_ru(w[n]), f[7] = __ll2float_rn(l[n]), i[5] = __float_as_int(x);
}
