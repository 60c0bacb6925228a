/* Eight threads that allocate buffers, map them for GPU and CPU, and unmap them: calls of two preloaded libraries
 * meet in every order. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#undef _IO
#undef _IOR
#undef _IOW
#undef _IOWR
#include "nvgpu-sys.h"

enum { THREADS = 8, ROUNDS = 100, SIZE = 65536 };

static int nvmap, space;

static void check(long result, const char *call)
{
    if (result < 0) {
        perror(call);
        exit(1);
    }
}

static void *work(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct nvmap_create_handle create = {.size = SIZE};
        check(ioctl(nvmap, NVMAP_IOC_CREATE, &create), "create");
        struct nvmap_alloc_handle alloc = {
            create.handle, NVMAP_HEAP_IOVMM, 0x0900u << 16 | NVMAP_HANDLE_WRITE_COMBINE, 4096, -1};
        check(ioctl(nvmap, NVMAP_IOC_ALLOC, &alloc), "alloc");
        struct nvmap_create_handle get = {.handle = create.handle};
        check(ioctl(nvmap, NVMAP_IOC_GET_FD, &get), "get fd");
        int fd = (int)get.size;
        struct nvgpu_as_map_buffer_ex_args map = {.compr_kind = -1, .dmabuf_fd = fd, .page_size = 4096};
        check(ioctl(space, NVGPU_AS_IOCTL_MAP_BUFFER_EX, &map), "map");
        volatile uint32_t *at = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        check(at == MAP_FAILED ? -1 : 0, "mmap");
        at[0] = i;
        struct nvgpu_as_unmap_buffer_args unmap = {map.offset};
        check(ioctl(space, NVGPU_AS_IOCTL_UNMAP_BUFFER, &unmap), "unmap");
        check(munmap((void *)at, SIZE), "munmap");
        close(fd);
        ioctl(nvmap, NVMAP_IOC_FREE, (long)create.handle);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    int ctrl = open("/dev/nvgpu/igpu0/ctrl", O_RDWR | O_CLOEXEC);
    check(ctrl, "ctrl");
    check(nvmap = open("/dev/nvmap", O_RDWR | O_CLOEXEC), "nvmap");
    struct nvgpu_alloc_as_args as = {.flags = NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA,
                                     .va_range_start = 0x200000,
                                     .va_range_end = 0xff00000000};
    check(ioctl(ctrl, NVGPU_GPU_IOCTL_ALLOC_AS, &as), "alloc as");
    space = as.as_fd;
    for (int i = 0; i < THREADS; i++)
        pthread_create(threads + i, 0, work, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    puts("done");
    return 0;
}
