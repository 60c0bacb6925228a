extern "C" __global__ void block_sum(const float *values, float *sums, int count)
{
    __shared__ float part[256];
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = at < count ? values[at] : 0.0f;
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step)
            part[threadIdx.x] += part[threadIdx.x + step];
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = part[0];
}
