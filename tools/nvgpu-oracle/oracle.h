/*
 * What the parts of the oracle share: the modelled kernel, its memory, the GPU, and the recorder of what the driver does.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <nvgpu/types.h>
#include "random.h"
#include <setjmp.h>
#include <stdio.h>

struct gk20a;
struct vm_gk20a;
struct dma_buf;
struct nvgpu_sgt;
struct nvgpu_mem;

/* ---- os.c: time, memory of the kernel, its log, its end ---- */

/* Where BUG() goes. The call that ran into it is over, and so is the machine. */
extern jmp_buf os_bug;
/* What the BUG() or the deadlock was, for the record. */
extern const char *os_bug_where;
/* Frees all memory of the kernel, also what the driver lost or used after it was freed. */
void os_reset(void);
/* Where lines of the log go from now on; NULL drops them. */
void os_log_to(FILE *out);
/* Virtual time in nanoseconds. */
u64 os_now(void);

/* ---- memory.c: physical pages, dma-bufs, what the driver allocates ---- */

/* First byte of physical memory that the driver's tables use. */
#define MEMORY_TABLES 0x100000000ULL
/* First byte of the pages of buffers: above 64 GiB, so that all bits of an address are seen. */
#define MEMORY_BUFFERS 0xf80000000ULL

void memory_reset(void);
/* Host memory of the page of a table; NULL for any other address. */
u32 *memory_table(u64 address);
/* What the driver asks of a buffer's pages. */
struct sg_table;
struct nvgpu_sgt *nvgpu_linux_sgt_create(struct gk20a *g, struct sg_table *table);
/* Calls `each` for every page that the driver allocated. */
void memory_each_table(void (*each)(u64 address, const u32 *words, void *context), void *context);
/* A buffer of whole pages, in runs of at most `run` pages each. Its number counts from 0. */
struct dma_buf *memory_new_buffer(u64 bytes, u64 run, int read_only);
/* The buffer with this number; NULL if there is none. */
struct dma_buf *memory_buffer(u32 number);
/* Which page of which buffer an address is; zero if of none. */
int memory_find(u64 address, u32 *number, u64 *page);
/* Physical memory of the syncpoints. */
#define MEMORY_SYNCPOINTS 0x60000000ULL

/* ---- files.c: descriptors of the modelled process ---- */

/* The first descriptor of a file. Smaller numbers are buffers, see memory.c. */
#define FILES_FIRST 10000

struct file;
struct file_operations;
struct cdev;
void files_reset(void);
/* Opens a node: its descriptor, or a negative errno. */
int files_open(const struct file_operations *operations, struct cdev *cdev);
void files_close(int fd);
/* Ends the files that nobody refers to any more. */
void files_release(void);
struct file *files_get(int fd);
int files_is_open(int fd);

/* ---- gpu.c: the GPU as the driver's probe leaves it ---- */

struct gpu_options {
	/* Big pages of 64 KiB, as on a chip behind an SMMU. */
	int big_pages;
	/* Whether the SMMU makes buffers contiguous for the GPU. */
	int iommu;
	/* Lines of compression tags; 0 for none. */
	u32 tags;
};

struct gk20a *gpu_new(const struct gpu_options *options);
/* Registers: zero unless set or written. */
void gpu_reset_registers(void);
void gpu_set_register(u32 address, u32 value);
struct gpu_options *gpu_options(struct gk20a *g);

/* ---- space.c: the address-space node, driven through its ioctls ---- */

/* What a client sees of a call: 0 or an errno, or that the machine stopped. */
#define SPACE_BUG 10000

struct space;
int space_open(struct gk20a *g, u32 big_page_size, u32 flags, u64 start, u64 end, u64 split, struct space **out);
int space_call(struct space *space, u32 request, void *argument);
struct vm_gk20a *space_vm(struct space *space);

/* ---- tables.c: page tables as the hardware sees them ---- */

void tables_print(struct vm_gk20a *vm, FILE *out);

/* ---- the records ---- */

void sequences_write(u64 seed, FILE *out);
void images_write(u64 seed, FILE *out);
void faults_write(u64 seed, FILE *out);

#endif
