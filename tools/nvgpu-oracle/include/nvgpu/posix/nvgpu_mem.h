/* Memory is described by scatter lists, as in the driver's Linux build. */
#ifndef ORACLE_NVGPU_MEM_H
#define ORACLE_NVGPU_MEM_H

#include <nvgpu/types.h>

struct page;
struct sg_table;

struct nvgpu_mem_priv {
	struct page **pages;
	struct sg_table *sgt;
	unsigned long flags;
};

struct nvgpu_mem;
struct nvgpu_mem_sgl;
int __nvgpu_mem_create_from_phys(struct gk20a *g, struct nvgpu_mem *dest, u64 src_phys, int nr_pages);

#endif
