/* Forks, with threads of the parent inside the GPU's calls, and programs that inherit its descriptors. Prints what the
 * children find; a child that waits for a lock of another thread is ended by its alarm and counted, and an alarm ends
 * a parent whose threads wait for each other. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#undef _IO
#undef _IOR
#undef _IOW
#undef _IOWR
#include "nvgpu-sys.h"

enum { THREADS = 8, FORKS = 200 };

static const char NODE[] = "/dev/nvgpu/igpu0/ctrl";
extern char **environ;

static const char *said(long result) { return result < 0 ? strerrorname_np(errno) : "ok"; }

static const char *asked(int fd) {
    uint32_t characteristics[256];
    struct nvgpu_gpu_get_characteristics ask = { sizeof characteristics, (uintptr_t)characteristics };
    return said(ioctl(fd, NVGPU_GPU_IOCTL_GET_CHARACTERISTICS, &ask));
}

static void ended(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) printf("a child ended with %#x\n", status);
}

static void inherited(int ctrl, int nvmap, const char *program) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct nvmap_create_handle create = { .size = 4096 };
        printf("fork: ctrl %s", asked(ctrl));
        printf(", nvmap %s", said(ioctl(nvmap, NVMAP_IOC_CREATE, &create)));
        printf(", open %s", said(open(NODE, O_RDWR)));
        printf(", mmap %s", said(mmap(NULL, 4096, PROT_READ, MAP_SHARED, ctrl, 0) == MAP_FAILED ? -1 : 0));
        int ends[2];
        if (pipe(ends) || write(ends[1], "x", 1) != 1) exit(1);
        struct pollfd poll_of = { ends[0], POLLIN, 0 };
        printf(", poll of a pipe %s", said(poll(&poll_of, 1, 1000)));
        printf(", close %s\n", said(close(ctrl)));
        exit(0);
    }
    ended(child);
    printf("parent: %s\n", asked(ctrl));
    fflush(stdout);
    char number[16];
    snprintf(number, sizeof number, "%d", ctrl);
    child = vfork();
    if (child == 0) {
        close(nvmap);
        execl(program, program, number, "vfork", NULL);
        _exit(1);
    }
    ended(child);
    char *arguments[] = { (char *)program, number, "posix_spawn", NULL };
    if (posix_spawn(&child, program, NULL, NULL, arguments, environ)) printf("posix_spawn failed\n");
    ended(child);
    printf("parent: %s\n", asked(ctrl));
}

static volatile int stop;

static void *loop(void *nvmap) {
    while (!stop) {
        int fd = open(NODE, O_RDWR | O_CLOEXEC);
        if (fd < 0 || strcmp(asked(fd), "ok")) printf("a thread: %s\n", said(-1));
        close(fd);
        DIR *listing = opendir("/dev/nvgpu");
        if (!listing) printf("a listing: %s\n", said(-1));
        else closedir(listing);
        /* Here the software driver reads a folder of the kernel's. */
        struct nvmap_query_heap_params heap = { .heap_mask = NVMAP_HEAP_CARVEOUT_VPR };
        if (ioctl(*(int *)nvmap, NVMAP_IOC_QUERY_HEAP_PARAMS, &heap)) printf("a heap: %s\n", said(-1));
    }
    return NULL;
}

static int child_of_threads(void) {
    alarm(10);
    FILE *file = fopen("/etc/passwd", "r");
    char line[16];
    if (!file) return errno;
    if (!fgets(line, sizeof line, file) || fclose(file)) return 201;
    if (open(NODE, O_RDWR) != -1 || errno != ENODEV) return 202;
    DIR *listing = opendir("/dev/nvgpu/igpu0");
    if (!listing || !readdir(listing) || closedir(listing)) return 203;
    return access("/dev/nvmap", R_OK) ? 204 : 0;
}

int main(int count, char **arguments) {
    if (count == 3) {
        int fd = atoi(arguments[1]);
        printf("%s: inherited %s", arguments[2], asked(fd));
        printf(", opened %s\n", asked(open(NODE, O_RDWR)));
        return 0;
    }
    /* Descriptors that a program inherits. */
    int ctrl = open(NODE, O_RDWR), nvmap = open("/dev/nvmap", O_RDWR);
    inherited(ctrl, nvmap, arguments[0]);

    alarm(60);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, loop, &nvmap);
    fflush(stdout);
    int wrong = 0;
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) _exit(child_of_threads());
        int status;
        waitpid(child, &status, 0);
        if (status) {
            printf("child %d ended with %#x\n", i, status);
            if (++wrong == 3) break;
        }
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("%d of %d children failed\n", wrong, FORKS);
    return 0;
}
