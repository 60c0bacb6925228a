/* Physical memory: pages of the system, and the carveouts that the machine reserves. */
#include "kernel.h"
#include "machine.h"

/* Pages that are there; more than any sequence takes. What the machine says it has is MACHINE_MEMORY. */
#define PAGES 0x40000
#define RAM_BASE 0x80000000UL
#define RAM_BYTES (PAGES * PAGE_SIZE)
/* The largest run of pages that the kernel gives is 4 MiB. */
#define MAX_ORDER 11

static struct page pages[PAGES];
static unsigned long used_pages;
/* No page below is free. */
static unsigned long full;
/* All of it in one file, so that scattered pages can be mapped side by side. */
static int store = -1;
static u8 *ram, *carveouts;

void memory_new(void)
{
	store = memfd_create("memory", 0);
	if (store < 0 || ftruncate(store, RAM_BYTES + 2 * CARVEOUT_BYTES) != 0)
		exit(3);
	ram = mmap(NULL, RAM_BYTES + 2 * CARVEOUT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, store, 0);
	if (ram == MAP_FAILED)
		exit(3);
	carveouts = ram + RAM_BYTES;
}

struct page *pfn_to_page(unsigned long pfn) { return &pages[pfn - (RAM_BASE >> PAGE_SHIFT)]; }
unsigned long page_to_pfn(const struct page *page) { return (unsigned long)(page - pages) + (RAM_BASE >> PAGE_SHIFT); }
bool pfn_valid(unsigned long pfn) { return pfn >= RAM_BASE >> PAGE_SHIFT && pfn < (RAM_BASE + RAM_BYTES) >> PAGE_SHIFT; }

void *memremap(phys_addr_t address, size_t bytes, unsigned long flags)
{
	(void)bytes;
	(void)flags;
	return address >= CARVEOUT_BASE ? carveouts + (address - CARVEOUT_BASE) : ram + (address - RAM_BASE);
}

void *vmap(struct page **list, unsigned int count, unsigned long flags, pgprot_t prot)
{
	u8 *at;

	(void)flags;
	(void)prot;
	if (count == 0)
		return NULL;
	at = mmap(NULL, count * PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		exit(3);
	for (unsigned int i = 0; i < count; i++)
		if (mmap(at + i * PAGE_SIZE, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, store,
			 (off_t)((list[i] - pages) * PAGE_SIZE)) == MAP_FAILED)
			exit(3);
	return at;
}

int get_order(unsigned long bytes)
{
	unsigned long left = (bytes - 1) >> PAGE_SHIFT;

	return left == 0 ? 0 : 64 - __builtin_clzl(left);
}

/* The machine has one node; the kernel follows the null pointer of any other. */
static void check_node(int node)
{
	if (node != NUMA_NO_NODE && node != 0)
		kernel_bug("a null pointer");
}

struct page *alloc_pages_node(int node, gfp_t gfp, unsigned int order)
{
	unsigned long count, run = 0;

	(void)gfp;
	if (order >= MAX_ORDER)
		return NULL;
	check_node(node);
	count = 1UL << order;
	for (unsigned long i = full; i < PAGES; i++) {
		run = pages[i].used ? 0 : run + 1;
		if (run < count)
			continue;
		for (unsigned long k = i + 1 - count; k <= i; k++)
			pages[k] = (struct page){ .used = true, ._mapcount = { -1 } };
		memset(ram + (i + 1 - count) * PAGE_SIZE, 0, count * PAGE_SIZE);
		used_pages += count;
		if (i + 1 - count == full)
			full = i + 1;
		return &pages[i + 1 - count];
	}
	fprintf(stderr, "a sequence takes more memory than there is\n");
	exit(3);
}

unsigned long __alloc_pages_bulk(gfp_t gfp, int node, void *nodes, int count, struct list_head *list, struct page **out)
{
	unsigned long got = 0;

	(void)nodes;
	(void)list;
	while (got < (unsigned long)count && out[got] != NULL)
		got++;
	for (; got < (unsigned long)count; got++)
		out[got] = alloc_pages_node(node, gfp, 0);
	return got;
}

void __free_page(struct page *page)
{
	page->used = false;
	if ((unsigned long)(page - pages) < full)
		full = (unsigned long)(page - pages);
	used_pages--;
}

unsigned long totalram_pages(void) { return MACHINE_MEMORY >> PAGE_SHIFT; }
long si_mem_available(void) { return (long)(totalram_pages() - used_pages); }

/* What nvmap declares itself of arm64's caches. */
void __clean_dcache_area_poc(void *at, size_t bytes) { (void)at, (void)bytes; }
void __dma_map_area(const void *at, size_t bytes, int direction) { (void)at, (void)bytes, (void)direction; }
