/*
 * Images of page tables that the driver wrote, with what was asked of it: all kinds, permissions, apertures and page sizes,
 * over the whole of the virtual addresses.
 *
 * I <seed> <root>                                  an image, and the physical address of its root
 * X <va> <bytes> <page> <address> <attributes> <kind>   consecutive memory that is mapped there; attributes are letters:
 *                                                  c coherent, u not cached, r read-only, p privileged, l system-level cache
 * X <va> <bytes> <page> -                          sparse
 * P <address> { <index>:<word>[+<n>|*<n>] }...     a page of tables: its 64-bit words that are not zero; +n: n more of them,
 *                                                  each for the next page of memory, *n: n more that are equal
 * .                                                the end of the image
 */
#include "oracle.h"

#include <linux/kernel-services.h>
#include <nvgpu/as.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/gmmu.h>
#include <nvgpu/vm.h>
#include <stdlib.h>

#define PAGE 4096ULL
#define BIG_PAGE 65536ULL
#define BLOCK (1ULL << 21)
#define MAPPINGS 24
#define RUNS 12

/* Mapped ranges: each in blocks of 2 MiB of its own, since the driver does not mix page sizes in one. */
static struct mapping {
	u64 va, bytes, page;
	u32 page_index;
	int sparse, invalid, gone;
	char attributes[8];
	u8 kind;
	u32 runs;
	struct { u64 address, bytes; } run[RUNS];
} mappings[MAPPINGS];
static u32 mapping_count;

static int overlaps(u64 va, u64 bytes)
{
	for (u32 i = 0; i < mapping_count; i++) {
		u64 first = mappings[i].va / BLOCK, last = (mappings[i].va + mappings[i].bytes - 1) / BLOCK;

		if (va / BLOCK <= last && (va + bytes - 1) / BLOCK >= first)
			return 1;
	}
	return 0;
}

/* Where memory is taken from: below the side-band bit of addresses. */
static u64 some_memory(u64 bytes, u64 page)
{
	u64 address = random_below(1ULL << (31 + random_below(7)));

	return (address + 0x80000000ULL) % ((1ULL << 37) - bytes) / page * page + page;
}

static void map_one(struct gk20a *g, struct vm_gk20a *vm, int big_pages)
{
	struct mapping *m = &mappings[mapping_count];
	struct scatterlist list[RUNS] = { 0 };
	struct sg_table table = { list };
	struct nvgpu_sgt *sgt = NULL;
	enum nvgpu_aperture aperture = APERTURE_INVALID;
	enum gk20a_mem_rw_flag access = gk20a_mem_flag_none;
	u32 flags = 0, i;
	int cached, coherent, privileged;
	char *at;

	memset(m, 0, sizeof(*m));
	m->page_index = big_pages && random_chance(50) ? GMMU_PAGE_SIZE_BIG : GMMU_PAGE_SIZE_SMALL;
	m->page = m->page_index == GMMU_PAGE_SIZE_BIG ? BIG_PAGE : PAGE;
	m->runs = 1 + (u32)random_below(RUNS);
	for (i = 0; i < m->runs; i++) {
		m->run[i].bytes = m->page * (1 + random_below(random_chance(80) ? 8 : 120));
		m->run[i].address = some_memory(m->run[i].bytes, m->page);
		list[i].phys = m->run[i].address;
		list[i].length = m->run[i].bytes;
		list[i].next = i + 1 < m->runs ? &list[i + 1] : NULL;
		m->bytes += m->run[i].bytes;
	}
	do {
		m->va = random_u64() >> (15 + random_below(28));
		m->va = m->va / m->page * m->page;
	} while (m->va < BLOCK || m->va + m->bytes >= 1ULL << 49 || overlaps(m->va, m->bytes));

	m->sparse = random_chance(15);
	m->kind = random_chance(40) ? 0 : random_chance(40) ? 6 : (u8)random_u64();
	cached = random_chance(60);
	coherent = random_chance(25);
	privileged = random_chance(20);
	m->invalid = random_chance(10);
	if (random_chance(25))
		access = gk20a_mem_flag_read_only;
	flags = (cached ? NVGPU_VM_MAP_CACHEABLE : 0) | (m->invalid ? NVGPU_VM_MAP_UNMAPPED_PTE : 0);
	if (random_chance(20))
		flags |= NVGPU_VM_MAP_L3_ALLOC;
	if (!m->sparse) {
		sgt = nvgpu_linux_sgt_create(g, &table);
		aperture = coherent ? APERTURE_SYSMEM_COH : APERTURE_SYSMEM;
	}
	if (g->ops.mm.gmmu.map(vm, m->va, sgt, 0, m->bytes, m->page_index, m->kind, random_chance(20) ? 1 + (u32)random_below(50) : 0,
			       flags, access, false, m->sparse, privileged, NULL, aperture) != m->va) {
		fprintf(stderr, "the driver does not map %llx\n", m->va);
		exit(3);
	}
	at = m->attributes;
	if (coherent)
		*at++ = 'c';
	if (!cached)
		*at++ = 'u';
	if (access == gk20a_mem_flag_read_only)
		*at++ = 'r';
	if (privileged)
		*at++ = 'p';
	if (flags & NVGPU_VM_MAP_L3_ALLOC)
		*at++ = 'l';
	if (at == m->attributes)
		*at++ = '-';
	mapping_count++;
}

static void unmap_one(struct gk20a *g, struct vm_gk20a *vm, struct mapping *m)
{
	int sparse = random_chance(40);

	g->ops.mm.gmmu.unmap(vm, m->va, m->bytes, m->page_index, false, gk20a_mem_flag_none, sparse, NULL);
	m->sparse = sparse;
	m->gone = !sparse;
}

static u64 word_at(const u32 *words, u32 i)
{
	return words[i * 2] | (u64)words[i * 2 + 1] << 32;
}

static void print_page(u64 address, const u32 *words, void *context)
{
	FILE *out = context;

	fprintf(out, "P %llx", address);
	for (u32 i = 0; i < 512;) {
		u64 word = word_at(words, i);
		u32 next = 1, same = 1;

		while (i + next < 512 && word_at(words, i + next) == word + next * 0x100)
			next++;
		while (i + same < 512 && word_at(words, i + same) == word)
			same++;
		if (word != 0) {
			fprintf(out, " %x:%llx", i, word);
			if (next > 1)
				fprintf(out, "+%x", next - 1);
			else if (same > 1)
				fprintf(out, "*%x", same - 1);
			else
				same = 1;
		}
		i += word == 0 ? 1 : next > 1 ? next : same;
	}
	fprintf(out, "\n");
}

void images_write(u64 seed, FILE *out)
{
	struct gpu_options options = { 0 };
	struct space *space = NULL;
	struct vm_gk20a *vm;
	struct gk20a *g;
	u32 i, count;

	random_seed(seed ^ 0x696d61676573ULL);
	memory_reset();
	os_reset();
	mapping_count = 0;
	options.big_pages = random_chance(60);
	g = gpu_new(&options);
	if (space_open(g, options.big_pages ? BIG_PAGE : 0, 2, BLOCK, 1ULL << 40, 0, &space) != 0)
		exit(3);
	vm = space_vm(space);
	count = 4 + (u32)random_below(MAPPINGS - 4);
	for (i = 0; i < count; i++) {
		map_one(g, vm, options.big_pages);
		if (random_chance(15))
			unmap_one(g, vm, &mappings[random_below(mapping_count)]);
	}
	fprintf(out, "I %llx %llx\n", seed, nvgpu_mem_get_addr(g, vm->pdb.mem));
	for (i = 0; i < mapping_count; i++) {
		struct mapping *m = &mappings[i];
		u64 va = m->va;

		if (m->sparse)
			fprintf(out, "X %llx %llx %llx -\n", m->va, m->bytes, m->page);
		if (m->sparse || m->gone || m->invalid)
			continue;
		for (u32 r = 0; r < m->runs; r++) {
			fprintf(out, "X %llx %llx %llx %llx %s %x\n", va, m->run[r].bytes, m->page, m->run[r].address, m->attributes,
				m->kind);
			va += m->run[r].bytes;
		}
	}
	memory_each_table(print_page, out);
	fprintf(out, ".\n");
}
