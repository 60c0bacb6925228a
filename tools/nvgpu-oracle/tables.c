/*
 * Page tables as the hardware sees them: walked from the root in physical memory, printed without the addresses that
 * differ from machine to machine.
 *
 * D <level> <va> <entry>                 a directory entry that is not zero, its address field cleared; level 0 has two halves
 * L <va> <count> <entry> <buffer> <page> leaves of consecutive pages of a buffer, the address field cleared but for the L3 bit
 * L <va> <count> <entry> s <page>        the same for the syncpoint unit
 * L <va> <count> <entry> -               leaves without an address
 */
#include "oracle.h"

#include <nvgpu/gk20a.h>
#include <nvgpu/nvgpu_mem.h>
#include <nvgpu/vm.h>

#define PAGE 4096ULL
/* Bits of an address in a leaf: 40 bits of physical address without the page offset. Above them lies the tag line. */
#define LEAF_ADDRESS (0xfffffffULL << 8)
#define L3_ALLOCATE (1ULL << 37)
#define DIRECTORY_ADDRESS (((1ULL << 46) - 1) << 8)
#define BIG_ADDRESS (((1ULL << 50) - 1) << 4)

static struct {
	FILE *out;
	u64 va, count, step, entry, page;
	char place[16];
} run;

static u64 entry_at(u64 table, u64 index)
{
	const u32 *words = memory_table(table + index * 8);

	return words == NULL ? 0 : words[0] | (u64)words[1] << 32;
}

static void finish_run(void)
{
	if (run.count > 0 && run.place[0] == '-')
		fprintf(run.out, "L %llx %llx %llx -\n", run.va, run.count, run.entry);
	else if (run.count > 0)
		fprintf(run.out, "L %llx %llx %llx %s %llx\n", run.va, run.count, run.entry, run.place, run.page);
	run.count = 0;
}

static void leaf(u64 va, u64 step, u64 entry)
{
	u64 address = (entry & LEAF_ADDRESS) >> 8 << 12;
	u64 plain = address & ~L3_ALLOCATE, page = 0;
	u64 kept = (entry & ~LEAF_ADDRESS) | (entry & L3_ALLOCATE >> 4);
	char place[sizeof(run.place)];
	u32 number;

	if (address == 0)
		snprintf(place, sizeof(place), "-");
	else if (plain >= MEMORY_SYNCPOINTS && plain < MEMORY_SYNCPOINTS + (64ULL << 20)) {
		snprintf(place, sizeof(place), "s");
		page = (plain - MEMORY_SYNCPOINTS) / PAGE;
	} else if (memory_find(plain, &number, &page))
		snprintf(place, sizeof(place), "%x", number);
	else
		snprintf(place, sizeof(place), "?");
	if (run.count > 0 && run.va + run.count * run.step == va && run.step == step && run.entry == kept &&
	    strcmp(run.place, place) == 0 && (place[0] == '-' || run.page + run.count * (step / PAGE) == page)) {
		run.count++;
		return;
	}
	finish_run();
	run.va = va;
	run.count = 1;
	run.step = step;
	run.entry = kept;
	run.page = page;
	strcpy(run.place, place);
}

static void leaves(u64 table, u64 va, u64 step, u64 count)
{
	for (u64 i = 0; i < count; i++) {
		u64 entry = entry_at(table, i);

		if (entry != 0)
			leaf(va + i * step, step, entry);
	}
}

static void directory(u32 level, u64 table, u64 va)
{
	static const u64 counts[] = { 256, 512, 512, 4 };
	static const u32 shifts[] = { 21, 29, 38, 47 };

	for (u64 i = 0; i < counts[level]; i++) {
		u64 at = va | i << shifts[level];

		if (level > 0) {
			u64 entry = entry_at(table, i);

			if (entry == 0)
				continue;
			finish_run();
			fprintf(run.out, "D %x %llx %llx\n", level, at, entry & ~DIRECTORY_ADDRESS);
			directory(level - 1, (entry & DIRECTORY_ADDRESS) >> 8 << 12, at);
		} else {
			u64 big = entry_at(table, i * 2), small = entry_at(table, i * 2 + 1);

			if (big == 0 && small == 0)
				continue;
			finish_run();
			fprintf(run.out, "D 0 %llx %llx %llx\n", at, big & ~BIG_ADDRESS, small & ~DIRECTORY_ADDRESS);
			if (big != 0)
				leaves((big & BIG_ADDRESS) >> 4 << 8, at, 65536, 32);
			if (small != 0)
				leaves((small & DIRECTORY_ADDRESS) >> 8 << 12, at, PAGE, 512);
		}
	}
}

void tables_print(struct vm_gk20a *vm, FILE *out)
{
	run.out = out;
	run.count = 0;
	fprintf(out, "T\n");
	directory(3, nvgpu_mem_get_addr(vm->mm->g, vm->pdb.mem), 0);
	finish_run();
	fprintf(out, ".\n");
}
