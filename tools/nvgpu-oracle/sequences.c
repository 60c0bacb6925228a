/*
 * Random sequences of calls to an address space, with what the driver answers and the page tables it writes.
 *
 * One line per call, numbers in hexadecimal; after `=` the answer, or `!` and the errno in decimal, or `!BUG` where the
 * driver runs into BUG(), which ends the sequence. Buffers are named by their number, `x` is a descriptor of none.
 *
 * S <seed>                                              a new machine
 * N <big page> <flags> <start> <end> <split> = 0        ALLOC_AS
 * B <bytes> <read only>                                 a buffer
 * A <pages> <page size> <flags> <offset> = <offset>     ALLOC_SPACE
 * F <offset> = 0                                        FREE_SPACE
 * M <buffer> <flags> <compressible kind> <kind> <offset> <buffer offset> <size> <page size> = <offset>   MAP_BUFFER_EX
 * U <offset> = 0                                        UNMAP_BUFFER
 * Y <address> <offset> <size> <compressible kind> <kind> = 0         MAPPING_MODIFY
 * R <count> { <flags> <compressible kind> <kind> <buffer or 0> <memory page> <page> <pages> }... = <done>  REMAP
 * C <unmaps> <maps> { <offset> }... { as of M }... = <maps done>     MAP_BUFFER_BATCH
 * G = <base> <size> <count>                             GET_SYNC_RO_MAP
 * V = <offset> <pages>                                  GET_VA_REGIONS
 * T ... .                                               the page tables, see tables.c
 */
#include "oracle.h"

#include <linux/kernel-services.h>
#include <nvgpu/as.h>
#include <uapi/linux/nvgpu.h>

#define PAGE 4096ULL
#define MOST 256

static struct {
	FILE *out;
	struct space *space;
	u64 start, end;
	u32 buffers;
	/* What was handed out, whether it is still there or not: addresses worth trying. */
	struct { u64 va, bytes; } areas[MOST], maps[MOST];
	u32 area_count, map_count;
	int stopped;
} now;

static void remember_area(u64 va, u64 bytes)
{
	u32 at = now.area_count < MOST ? now.area_count++ : (u32)random_below(MOST);

	now.areas[at].va = va;
	now.areas[at].bytes = bytes;
}

static void remember_map(u64 va, u64 bytes)
{
	u32 at = now.map_count < MOST ? now.map_count++ : (u32)random_below(MOST);

	now.maps[at].va = va;
	now.maps[at].bytes = bytes;
}

/* Prints the end of a line that failed; true when the call succeeded. */
static int answered(int err)
{
	if (err == 0)
		return 1;
	if (err == SPACE_BUG) {
		fprintf(now.out, " = !BUG %s\n", os_bug_where);
		now.stopped = 1;
	} else
		fprintf(now.out, " = !%d\n", err);
	return 0;
}

/* Mostly small, sometimes large, sometimes next to a power of two. */
static u64 some_pages(u64 most)
{
	u64 pages = 1 + random_below(random_chance(70) ? 24 : random_chance(70) ? 700 : most);

	if (random_chance(15)) {
		pages = 1ULL << random_below(14);
		pages += random_below(3) - 1;
	}
	return pages == 0 || pages > most ? 1 : pages;
}

/* An address in the range of the space, a whole page in most cases. */
static u64 some_address(void)
{
	u64 va = now.start + random_below((now.end - now.start) / PAGE) * PAGE;

	if (random_chance(30))
		va = now.start + random_below(64) * PAGE;
	if (random_chance(40) && now.area_count > 0) {
		u32 i = (u32)random_below(now.area_count);

		va = now.areas[i].va + (random_below(now.areas[i].bytes / PAGE + 8) - 4) * PAGE;
	}
	if (random_chance(3))
		va += random_below(PAGE);
	return va;
}

static void new_buffer(void)
{
	u64 pages = some_pages(1500);
	int read_only = random_chance(12);

	memory_new_buffer(pages * PAGE, 1 + random_below(40), read_only);
	fprintf(now.out, "B %llx %d\n", pages * PAGE, read_only);
	now.buffers++;
}

static void open_space(struct gk20a *g, u32 big_page_size, u32 flags, u64 start, u64 end, u64 split)
{
	int err;

	fprintf(now.out, "N %x %x %llx %llx %llx", big_page_size, flags, start, end, split);
	err = space_open(g, big_page_size, flags, start, end, split, &now.space);
	if (!answered(err))
		return;
	fprintf(now.out, " = 0\n");
	now.start = start;
	now.end = end;
}

/* One that the driver refuses, in one of the ways there are. */
static void refused_space(struct gk20a *g)
{
	u64 start = random_below(1 << 18) << 21, end = start + (1 + random_below(1 << 17)) * (1 << 21);

	switch (random_below(7)) {
	case 0: open_space(g, 0x10000, 2, start + (1 << 21), end + (1 << 21), 0); break;
	case 1: open_space(g, 0, 2, 0, end, 0); break;
	case 2: open_space(g, 0, 2, start + PAGE, end, 0); break;
	case 3: open_space(g, 0, 2, start + (1 << 21), end + 2 * (1 << 21) - 1, 0); break;
	case 4: open_space(g, 0, 2, end, start + (1 << 21) <= end ? start + (1 << 21) : end, 0); break;
	case 5: open_space(g, 0, random_chance(50) ? 2 : 0, start + (1 << 21), end + (1 << 21), start + 2 * (1 << 21)); break;
	default: open_space(g, (u32)random_u64(), 2, start + (1 << 21), end + (1 << 21), 0); break;
	}
}

static void choose_space(struct gk20a *g)
{
	static const u64 usual[][2] = {
		{ 0x200000, 0xffffe00000 }, { 0x200000, 0xff00000000 }, { 0x4000000, 0x2000000000 }, { 0x100000000, 0xff00000000 },
	};
	u64 start, end;

	if (random_chance(40)) {
		u32 i = (u32)random_below(4);

		start = usual[i][0];
		end = usual[i][1];
	} else if (random_chance(60)) {
		start = (1 + random_below(64)) << 21;
		end = start + ((1 + random_below(12)) << 21);
	} else {
		start = (1 + random_below(1 << 17)) << 21;
		end = start + ((1 + random_below(1 << random_below(20))) << 21);
	}
	open_space(g, 0, random_chance(70) ? 2 : 0, start, end, 0);
}

static void alloc_space(void)
{
	struct nvgpu_as_alloc_space_args a = { 0 };
	int sparse = random_chance(25);

	a.pages = some_pages(sparse ? 3000 : 1 << 20);
	a.page_size = 4096;
	a.flags = sparse ? NVGPU_AS_ALLOC_SPACE_FLAGS_SPARSE : 0;
	if (random_chance(45)) {
		a.flags |= NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET;
		a.o_a.offset = some_address();
		if (random_chance(10))
			a.o_a.offset = random_chance(50) ? now.end - a.pages * PAGE : now.end - (a.pages - 1) * PAGE;
		if (random_chance(2))
			a.o_a.offset = random_below(now.start);
	} else if (random_chance(5))
		a.o_a.offset = random_u64();
	if (random_chance(3))
		a.page_size = (u32[]){ 0, 8192, 65536, 131072, 1 }[random_below(5)];
	if (random_chance(2))
		a.pages = 0;
	if (random_chance(2) && !sparse)
		a.pages = random_u64() >> random_below(52);
	/* Past the end of all addresses. */
	if (random_chance(1)) {
		a.flags = NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET;
		a.pages = (~0ULL - a.o_a.offset) / PAGE + 1 + random_below(4);
	}
	fprintf(now.out, "A %llx %x %x %llx", (u64)a.pages, a.page_size, a.flags, (u64)a.o_a.offset);
	if (!answered(space_call(now.space, NVGPU_AS_IOCTL_ALLOC_SPACE, &a)))
		return;
	fprintf(now.out, " = %llx\n", (u64)a.o_a.offset);
	remember_area(a.o_a.offset, a.pages * PAGE);
}

static void free_space(void)
{
	struct nvgpu_as_free_space_args a = { 0 };

	a.offset = some_address();
	if (random_chance(80) && now.area_count > 0) {
		u32 i = (u32)random_below(now.area_count);

		a.offset = now.areas[i].va + (random_chance(20) ? random_below(now.areas[i].bytes) : 0);
		if (random_chance(85))
			now.areas[i] = now.areas[--now.area_count];
	}
	fprintf(now.out, "F %llx", (u64)a.offset);
	if (answered(space_call(now.space, NVGPU_AS_IOCTL_FREE_SPACE, &a)))
		fprintf(now.out, " = 0\n");
}

static void some_map(struct nvgpu_as_map_buffer_ex_args *a, u64 *bytes)
{
	u32 number = (u32)random_below(now.buffers);
	u64 size = memory_buffer(number)->size;

	memset(a, 0, sizeof(*a));
	a->dmabuf_fd = 100 + number;
	a->compr_kind = -1;
	a->incompr_kind = random_chance(60) ? 0 : random_chance(60) ? 6 : (s16)random_below(256);
	if (random_chance(8))
		a->compr_kind = (s16)random_below(random_chance(80) ? 256 : 400);
	if (random_chance(3))
		a->incompr_kind = (s16[]){ -1, -2, 256, 300, 32767, -32768 }[random_below(6)];
	if (random_chance(60))
		a->flags |= NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE;
	if (random_chance(10))
		a->flags |= NVGPU_AS_MAP_BUFFER_FLAGS_UNMAPPED_PTE;
	if (random_chance(10))
		a->flags |= NVGPU_AS_MAP_BUFFER_FLAGS_L3_ALLOC;
	if (random_chance(15))
		a->flags |= NVGPU_AS_MAP_BUFFER_FLAGS_SYSTEM_COHERENT;
	if (random_chance(3))
		a->flags |= NVGPU_AS_MAP_BUFFER_FLAGS_MAPPABLE_COMPBITS;
	if (random_chance(1))
		a->flags |= NVGPU_AS_MAP_BUFFER_FLAGS_TEGRA_RAW;
	if (random_chance(1))
		a->flags |= 1U << random_below(32);
	if (random_chance(30))
		a->flags |= (u32)random_below(random_chance(10) ? 4 : 3) << NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET;
	if (random_chance(45) && now.area_count > 0) {
		u32 i = (u32)random_below(now.area_count);

		a->flags |= NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET;
		a->offset = now.areas[i].va + random_below(now.areas[i].bytes / PAGE + 1) * PAGE;
		if (random_chance(40))
			a->offset = now.areas[i].va;
		if (random_chance(15) && now.map_count > 0)
			a->offset = now.maps[random_below(now.map_count)].va;
		if (random_chance(5))
			a->offset = some_address();
		if (random_chance(60)) {
			a->buffer_offset = random_chance(50) ? 0 : random_below(size / PAGE + 1) * PAGE;
			a->mapping_size = random_below((size - a->buffer_offset) / PAGE + 1) * PAGE;
		}
		if (random_chance(3))
			a->buffer_offset += random_below(PAGE);
		if (random_chance(3))
			a->mapping_size += random_below(2 * PAGE);
	} else {
		if (random_chance(2))
			a->offset = some_address();
		if (random_chance(1))
			a->buffer_offset = PAGE;
		if (random_chance(1))
			a->mapping_size = random_below(size * 2);
	}
	if (random_chance(3))
		a->page_size = (u32)random_u64();
	if (random_chance(1))
		a->dmabuf_fd = 99;
	*bytes = a->mapping_size == 0 ? size : a->mapping_size;
}

static void print_map(const struct nvgpu_as_map_buffer_ex_args *a)
{
	if (a->dmabuf_fd == 99)
		fprintf(now.out, " x");
	else
		fprintf(now.out, " %x", a->dmabuf_fd - 100);
	fprintf(now.out, " %x %x %x %llx %llx %llx %x", a->flags, (u16)a->compr_kind, (u16)a->incompr_kind, (u64)a->offset,
		(u64)a->buffer_offset, (u64)a->mapping_size, a->page_size);
}

static void map(void)
{
	struct nvgpu_as_map_buffer_ex_args a;
	u64 bytes;

	some_map(&a, &bytes);
	fprintf(now.out, "M");
	print_map(&a);
	if (!answered(space_call(now.space, NVGPU_AS_IOCTL_MAP_BUFFER_EX, &a)))
		return;
	fprintf(now.out, " = %llx\n", (u64)a.offset);
	remember_map(a.offset, bytes);
}

static u64 some_mapping(void)
{
	u32 i;

	if (now.map_count == 0 || random_chance(8))
		return some_address();
	i = (u32)random_below(now.map_count);
	return now.maps[i].va + (random_chance(5) ? PAGE : 0);
}

static void unmap(void)
{
	struct nvgpu_as_unmap_buffer_args a = { 0 };

	a.offset = some_mapping();
	fprintf(now.out, "U %llx", (u64)a.offset);
	if (answered(space_call(now.space, NVGPU_AS_IOCTL_UNMAP_BUFFER, &a)))
		fprintf(now.out, " = 0\n");
}

static void modify(void)
{
	struct nvgpu_as_mapping_modify_args a = { 0 };
	u32 i;

	if (now.map_count == 0)
		return;
	i = (u32)random_below(now.map_count);
	a.map_address = now.maps[i].va + (random_chance(5) ? PAGE : 0);
	a.buffer_offset = random_below(now.maps[i].bytes / PAGE + 2) * PAGE;
	a.buffer_size = (random_below(now.maps[i].bytes / PAGE + 1)) * PAGE;
	if (random_chance(50))
		a.buffer_offset = 0;
	if (random_chance(5))
		a.buffer_offset += 1 + random_below(PAGE - 1);
	if (random_chance(5))
		a.buffer_size += 1 + random_below(PAGE - 1);
	a.compr_kind = random_chance(80) ? -1 : (s16)random_below(256);
	a.incompr_kind = random_chance(90) ? (s16)random_below(256) : (s16[]){ -1, -2, 256, 300 }[random_below(4)];
	fprintf(now.out, "Y %llx %llx %llx %x %x", (u64)a.map_address, (u64)a.buffer_offset, (u64)a.buffer_size, (u16)a.compr_kind,
		(u16)a.incompr_kind);
	if (answered(space_call(now.space, NVGPU_AS_IOCTL_MAPPING_MODIFY, &a)))
		fprintf(now.out, " = 0\n");
}

static void remap(void)
{
	struct nvgpu_as_remap_op ops[6] = { 0 };
	struct nvgpu_as_remap_args a = { 0 };
	u32 i, area;

	if (now.area_count == 0)
		return;
	area = (u32)random_below(now.area_count);
	a.ops = (u64)(uintptr_t)ops;
	a.num_ops = 1 + (u32)random_below(random_chance(50) ? 1 : 6);
	for (i = 0; i < a.num_ops; i++) {
		struct nvgpu_as_remap_op *op = &ops[i];
		u64 pages = now.areas[area].bytes / PAGE;

		op->flags = NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_4K;
		op->compr_kind = -1;
		op->incompr_kind = -1;
		op->virt_offset_in_pages = now.areas[area].va / PAGE + random_below(pages + 1);
		op->num_pages = 1 + random_below(random_chance(80) ? 16 : pages + 2);
		if (random_chance(65)) {
			u32 number = (u32)random_below(now.buffers);
			u64 size = memory_buffer(number)->size / PAGE;

			op->mem_handle = 100 + number;
			op->incompr_kind = (s16)random_below(256);
			op->mem_offset_in_pages = random_below(size);
			if (op->num_pages > size - op->mem_offset_in_pages && random_chance(90))
				op->num_pages = size - op->mem_offset_in_pages;
			if (random_chance(50))
				op->flags |= NVGPU_AS_REMAP_OP_FLAGS_CACHEABLE;
			if (random_chance(30))
				op->flags |= NVGPU_AS_REMAP_OP_FLAGS_ACCESS_NO_WRITE;
			if (random_chance(2))
				op->incompr_kind = (s16[]){ -1, -2, 256, 300 }[random_below(4)];
			if (random_chance(2))
				op->mem_handle = 99;
		} else if (random_chance(5))
			op->incompr_kind = 0;
		if (random_chance(2))
			op->flags = 1U << random_below(32);
		if (random_chance(2))
			op->num_pages = random_chance(50) ? 0 : random_u64();
		if (random_chance(2))
			op->virt_offset_in_pages = random_u64() >> random_below(50);
		if (random_chance(1))
			op->mem_offset_in_pages = random_u64() >> random_below(50);
	}
	fprintf(now.out, "R %x", a.num_ops);
	for (i = 0; i < a.num_ops; i++) {
		fprintf(now.out, " %x %x %x ", ops[i].flags, (u16)ops[i].compr_kind, (u16)ops[i].incompr_kind);
		if (ops[i].mem_handle == 0)
			fprintf(now.out, "-");
		else if (ops[i].mem_handle == 99)
			fprintf(now.out, "x");
		else
			fprintf(now.out, "%x", ops[i].mem_handle - 100);
		fprintf(now.out, " %llx %llx %llx", (u64)ops[i].mem_offset_in_pages, (u64)ops[i].virt_offset_in_pages,
			(u64)ops[i].num_pages);
	}
	if (answered(space_call(now.space, NVGPU_AS_IOCTL_REMAP, &a)))
		fprintf(now.out, " = %x\n", a.num_ops);
}

static void batch(void)
{
	struct nvgpu_as_unmap_buffer_args unmaps[4] = { 0 };
	struct nvgpu_as_map_buffer_ex_args maps[4];
	struct nvgpu_as_map_buffer_batch_args a = { 0 };
	u64 bytes[4];
	u32 i;

	a.unmaps = (u64)(uintptr_t)unmaps;
	a.maps = (u64)(uintptr_t)maps;
	a.num_unmaps = (u32)random_below(4);
	a.num_maps = (u32)random_below(4);
	fprintf(now.out, "C %x %x", a.num_unmaps, a.num_maps);
	for (i = 0; i < a.num_unmaps; i++) {
		unmaps[i].offset = some_mapping();
		fprintf(now.out, " %llx", (u64)unmaps[i].offset);
	}
	for (i = 0; i < a.num_maps; i++) {
		some_map(&maps[i], &bytes[i]);
		print_map(&maps[i]);
	}
	if (answered(space_call(now.space, NVGPU_AS_IOCTL_MAP_BUFFER_BATCH, &a)))
		fprintf(now.out, " = %x\n", a.num_maps);
	/* Addresses do not come back; those of fixed mappings are known. */
	for (i = 0; i < a.num_maps && i < 4; i++)
		if (maps[i].flags & NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET)
			remember_map(maps[i].offset, bytes[i]);
}

static void sync_map(void)
{
	struct nvgpu_as_get_sync_ro_map_args a = { 0 };

	fprintf(now.out, "G");
	if (answered(space_call(now.space, NVGPU_AS_IOCTL_GET_SYNC_RO_MAP, &a)))
		fprintf(now.out, " = %llx %x %x\n", (u64)a.base_gpuva, a.sync_size, a.num_syncpoints);
}

static void regions(void)
{
	struct nvgpu_as_va_region region = { 0 };
	struct nvgpu_as_get_va_regions_args a = { 0 };

	a.buf_addr = (u64)(uintptr_t)&region;
	a.buf_size = sizeof(region);
	fprintf(now.out, "V");
	if (answered(space_call(now.space, NVGPU_AS_IOCTL_GET_VA_REGIONS, &a)))
		fprintf(now.out, " = %llx %llx\n", (u64)region.offset, (u64)region.pages);
}

void sequences_write(u64 seed, FILE *out)
{
	const struct gpu_options options = { .big_pages = 0, .iommu = 0, .tags = 0 };
	struct gk20a *g;
	u32 calls, i;

	random_seed(seed);
	memory_reset();
	os_reset();
	memset(&now, 0, sizeof(now));
	now.out = out;
	fprintf(out, "S %llx\n", seed);
	g = gpu_new(&options);
	while (random_chance(20) && !now.stopped)
		refused_space(g);
	while (now.space == NULL && !now.stopped)
		choose_space(g);
	calls = random_chance(90) ? 20 + (u32)random_below(80) : 200 + (u32)random_below(400);
	for (i = 0; i < 3 + random_below(6); i++)
		new_buffer();
	for (i = 0; i < calls && !now.stopped; i++) {
		u64 dice = random_below(100);

		if (dice < 20)
			alloc_space();
		else if (dice < 30)
			free_space();
		else if (dice < 63)
			map();
		else if (dice < 80)
			unmap();
		else if (dice < 84)
			modify();
		else if (dice < 91)
			remap();
		else if (dice < 95)
			batch();
		else if (dice < 97)
			new_buffer();
		else if (dice < 98)
			sync_map();
		else if (dice < 99)
			regions();
		else
			tables_print(space_vm(now.space), out);
	}
	if (!now.stopped && now.space != NULL)
		tables_print(space_vm(now.space), out);
}
