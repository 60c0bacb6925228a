/* The machine that nvmap finds, and what the client does with it. */
#ifndef ORACLE_NVMAP_MACHINE_H
#define ORACLE_NVMAP_MACHINE_H

/* As in the software ga10b of the comparison. */
#define MACHINE_MEMORY (8UL << 30)
/* Above all memory of the system: first VPR, then FSI. The size of each is the software ga10b's own. */
#define CARVEOUT_BASE 0x1000000000UL
#define CARVEOUT_BYTES (64UL << 20)

/* The first descriptor of a file. */
#define FILES_FIRST 10000

/* memory.c */
void memory_new(void);

/* kernel.c */

/* Loads nvmap. */
void kernel_new(void);
/* Opens /dev/nvmap: its descriptor, or a negative errno. */
int kernel_open(void);
struct file *kernel_file(int fd);
/* Runs what was put off until the call returns to the process. */
void kernel_return(void);
/* Maps a file: 0 and the mapping, or a negative errno. */
int kernel_mmap(struct file *file, size_t bytes, unsigned long page, bool writes, struct vm_area_struct **out);
void kernel_munmap(struct vm_area_struct *vma);
/* The word at an offset of a mapping; NULL for SIGBUS. */
u32 *kernel_touch(struct vm_area_struct *vma, size_t offset);
/* All references to files that have a descriptor. */
long kernel_references(void);

#endif
