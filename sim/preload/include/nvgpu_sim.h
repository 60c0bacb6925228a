/*
 * What a program can say to libnvgpu_sim.so, the software ga10b, when it checks kernels (NVGPU_SIM_CHECK).
 *
 * All functions are weak: without the library their addresses are null, and a program that runs on a real GPU too
 * asks once, at its start, whether anybody listens:
 *
 *     static int noted;
 *     noted = nvgpu_sim_notes ? nvgpu_sim_notes() : 0;
 *
 * Each returns 0, or -1 with errno: EBADF for a descriptor that is no GPU address space, EINVAL for a number or a
 * name that means nothing. Docs: docs/checker.md.
 */
#ifndef NVGPU_SIM_H
#define NVGPU_SIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a piece of memory is. */
enum nvgpu_sim_kind {
    NVGPU_SIM_BUFFER = 0,     /* data */
    NVGPU_SIM_COMMANDS = 1,   /* pushbuffers */
    NVGPU_SIM_LAUNCHES = 2,   /* launch descriptors (QMD), constant banks */
    NVGPU_SIM_PROGRAM = 3,    /* a loaded program; pieces inside it say which part is what */
    NVGPU_SIM_CODE = 4,
    NVGPU_SIM_CONSTANTS = 5,
    NVGPU_SIM_VARIABLES = 6,
    NVGPU_SIM_LOCAL = 7,      /* backs the local memory of threads */
    NVGPU_SIM_STAGING = 8,
    NVGPU_SIM_SIGNAL = 9,     /* semaphores */
    NVGPU_SIM_OTHER = 10
};

/* What loads and stores of kernels may do. */
enum nvgpu_sim_access { NVGPU_SIM_NONE = 0, NVGPU_SIM_READ = 1, NVGPU_SIM_READ_WRITE = 2 };

/* 0: notes are dropped; 1: findings use the names; 2: accesses are compared with the pieces as well. */
__attribute__((weak)) int nvgpu_sim_notes(void);

/* `bytes` bytes at the GPU address `va` are in use. From now on the rest of the mapping that holds them is out of
 * bounds, unless other pieces lie there. `as_fd` is the address space's descriptor; `name` may be null. */
__attribute__((weak)) int nvgpu_sim_piece(int as_fd, uint64_t va, uint64_t bytes, unsigned kind, unsigned access,
                                          const char *name);

/* The piece that starts at `va` is freed. */
__attribute__((weak)) int nvgpu_sim_freed(int as_fd, uint64_t va);

/* The piece that starts at `va` is called `name`. */
__attribute__((weak)) int nvgpu_sim_name(int as_fd, uint64_t va, const char *name);

/* `bytes` bytes of code at `va` are the kernel `name`. Its threads use at most `stack_bytes` bytes of stack, which
 * starts at the offset `stack_top` into local memory and grows down; 0 bytes: not known. */
__attribute__((weak)) int nvgpu_sim_kernel(int as_fd, uint64_t va, uint64_t bytes, const char *name,
                                           uint32_t stack_top, uint32_t stack_bytes);

#ifdef __cplusplus
}
#endif

#endif
