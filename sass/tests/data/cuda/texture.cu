// Textures and surfaces by handle.
template <typename T> __device__ void all(cudaTextureObject_t t, T *out, float x, float y, float z, int n) {
    out[0] = tex1D<T>(t, x);
    out[1] = tex2D<T>(t, x, y);
    out[2] = tex3D<T>(t, x, y, z);
    out[3] = tex1DLayered<T>(t, x, n);
    out[4] = tex2DLayered<T>(t, x, y, n);
    out[5] = texCubemap<T>(t, x, y, z);
    out[6] = texCubemapLayered<T>(t, x, y, z, n);
    out[7] = tex1Dfetch<T>(t, n);
    out[8] = tex1DLod<T>(t, x, y);
    out[9] = tex2DLod<T>(t, x, y, z);
    out[10] = tex3DLod<T>(t, x, y, z, 1.0f);
    out[11] = tex1DGrad<T>(t, x, y, z);
    out[12] = tex2DGrad<T>(t, x, y, make_float2(x, y), make_float2(y, z));
    out[13] = tex3DGrad<T>(t, x, y, z, make_float4(x, y, z, x), make_float4(y, y, z, z));
    out[14] = tex2DLayeredLod<T>(t, x, y, n, z);
    out[15] = texCubemapLod<T>(t, x, y, z, 2.0f);
}
extern "C" __global__ void read_float4(cudaTextureObject_t t, float4 *out, float x, float y, float z, int n) {
    all<float4>(t, out + threadIdx.x * 16, x, y, z, n + threadIdx.x);
}
extern "C" __global__ void read_float(cudaTextureObject_t t, float *out, float x, float y, float z, int n) {
    all<float>(t, out + threadIdx.x * 16, x + threadIdx.x, y, z, n);
}
extern "C" __global__ void read_int2(cudaTextureObject_t t, int2 *out, float x, float y, float z, int n) {
    all<int2>(t, out, x, y, z, n);
}
extern "C" __global__ void gather(cudaTextureObject_t t, float4 *out, float x, float y) {
    out[0] = tex2Dgather<float4>(t, x, y, 0);
    out[1] = tex2Dgather<float4>(t, x, y, 1);
    out[2] = tex2Dgather<float4>(t, x, y, 2);
    out[3] = tex2Dgather<float4>(t, x, y, 3);
}
extern "C" __global__ void many(const cudaTextureObject_t *t, float4 *out, float x, float y) {
    float4 sum = tex2D<float4>(t[threadIdx.x], x, y);
    bool resident;
    float4 sparse = tex2D<float4>(t[blockIdx.x], y, x, &resident);
    out[threadIdx.x] = resident ? sparse : sum;
}
template <typename T> __device__ void move(cudaSurfaceObject_t s, T *data, int x, int y, int z) {
    surf1Dwrite(data[0], s, x);
    surf2Dwrite(data[1], s, x, y, cudaBoundaryModeClamp);
    surf3Dwrite(data[2], s, x, y, z, cudaBoundaryModeZero);
    surf1DLayeredwrite(data[3], s, x, z);
    surf2DLayeredwrite(data[4], s, x, y, z);
    surfCubemapwrite(data[5], s, x, y, z);
    data[6] = surf1Dread<T>(s, x);
    data[7] = surf2Dread<T>(s, x, y, cudaBoundaryModeClamp);
    data[8] = surf3Dread<T>(s, x, y, z, cudaBoundaryModeZero);
    data[9] = surf1DLayeredread<T>(s, x, z);
    data[10] = surf2DLayeredread<T>(s, x, y, z);
    data[11] = surfCubemapread<T>(s, x, y, z);
}
extern "C" __global__ void surface_float4(cudaSurfaceObject_t s, float4 *data, int x, int y, int z) {
    move<float4>(s, data, x + threadIdx.x * 16, y, z);
}
extern "C" __global__ void surface_char(cudaSurfaceObject_t s, char *data, int x, int y, int z) {
    move<char>(s, data, x, y + threadIdx.x, z);
}
extern "C" __global__ void surface_short2(const cudaSurfaceObject_t *s, short2 *data, int x, int y, int z) {
    move<short2>(s[threadIdx.x], data, x, y, z);
}
