/*
 * Random sequences of requests of /dev/nvmap, with what nvmap answers.
 *
 * The lines are those of requests.c but for these. Handles (b) are counted like files, in the order of their making: their
 * numbers depend on what was made before on a machine. A refused call that changed its argument has the argument after the
 * errno.
 *
 * O nvmap = <file>                                  opens the node
 * M <file> <bytes> <page> <writable> = 0            mmap(): mappings (m) that are made are counted
 * U <mapping> = 0                                   munmap()
 * W <mapping> <offset> <word>                       the client writes a word
 * Q <mapping> <offset> = <word>                     the client reads a word
 *
 * u<at>=<mapping>+<offset> marks an address in a mapping. The argument of NVMAP_IOC_FREE is the number itself.
 */
#include "calls.h"
#include "machine.h"
#include "random.h"

#include <sys/wait.h>
#include <linux/nvmap.h>
#include <unistd.h>

#define MOST 24
#define ONE_OF(...) some_u32((const u32[]){ __VA_ARGS__ }, ARRAY_SIZE(((u32[]){ __VA_ARGS__ })))

struct held {
	int at[MOST];
	u64 bytes[MOST];
	/* A handle of the same memory. */
	int handle[MOST];
	u32 count;
};

static struct held nodes, handles, files, mappings;

static u32 some_u32(const u32 *values, u32 count) { return values[random_below(count)]; }
static bool wrong(void) { return random_chance(20); }

static void hold(struct held *held, int at, u64 bytes, int handle)
{
	if (at == HANDLE_NONE || held->count == MOST)
		return;
	held->at[held->count] = at;
	held->handle[held->count] = handle;
	held->bytes[held->count++] = bytes;
}

static void drop(struct held *held, u32 i)
{
	held->at[i] = held->at[--held->count];
	held->handle[i] = held->handle[held->count];
	held->bytes[i] = held->bytes[held->count];
}

/* Which was chosen last. */
static u32 chosen;

static int one(const struct held *held, u64 *bytes)
{
	u32 i = chosen = (u32)random_below(held->count);

	*bytes = held->count == 0 ? PAGE_SIZE : held->bytes[i];
	return held->count == 0 ? HANDLE_NONE : held->at[i];
}

static int node(void)
{
	u64 bytes;

	return one(&nodes, &bytes);
}

/* A handle, seldom something else. */
static int some_handle(u64 *bytes)
{
	int handle = one(&handles, bytes);

	if (!random_chance(6))
		return handle;
	switch (random_below(3)) {
	case 0: return HANDLE_NONE;
	case 1: return node();
	default: return one(&files, bytes);
	}
}

static u64 some_size(void)
{
	if (random_chance(8))
		return (u64[]){ 0, 1UL << 40, MACHINE_MEMORY + PAGE_SIZE, 1, ~0xfffUL, 4097 }[random_below(6)];
	if (random_chance(12))
		return (u64)ONE_OF(4 << 20, (4 << 20) + 4096, 20 << 20, 17 << 20, random_chance(20) ? CARVEOUT_BYTES : CARVEOUT_BYTES / 2);
	return random_chance(40) ? PAGE_SIZE : PAGE_SIZE * (1 + random_below(40)) - (random_chance(30) ? random_below(4096) : 0);
}

static void alloc(int handle)
{
	struct nvmap_alloc_handle *a = CALL(struct nvmap_alloc_handle, node(), NVMAP_IOC_ALLOC);
	const u32 system = NVMAP_HEAP_IOVMM, vpr = NVMAP_HEAP_CARVEOUT_VPR, fsi = NVMAP_HEAP_CARVEOUT_FSI;

	call_descriptor(&a->handle, handle);
	a->heap_mask = random_chance(55) ? system : ONE_OF(vpr, fsi, system | vpr, system | fsi, vpr | fsi, system | vpr | fsi);
	a->flags = ONE_OF(0, 1, 2, 3, 3, 3, 1) | (random_chance(30) ? (u32)random_below(0x400) & ~3U : 0) | (u32)random_below(3) << 16;
	a->align = ONE_OF(0, 4096, 4096, 65536, 64);
	a->numa_nid = random_chance(80) ? -1 : 0;
	if (wrong())
		switch (random_below(5)) {
		case 0: a->heap_mask = ONE_OF(0, NVMAP_HEAP_CARVEOUT_IVM, NVMAP_HEAP_CARVEOUT_IVM | system, NVMAP_HEAP_CARVEOUT_GENERIC, NVMAP_HEAP_CARVEOUT_VIDMEM | fsi, NVMAP_HEAP_CARVEOUT_TSEC, 0x80000000, NVMAP_HEAP_CARVEOUT_VIDMEM, 0xbffffff0); break;
		case 1: a->align = ONE_OF(3, 4097, 0x30000, 0x80000000, 0xffffffff); break;
		case 2: a->numa_nid = (s32)ONE_OF(17, (u32)-2, 0x7fffffff, 0x80000000); break;
		case 3: a->numa_nid = random_chance(40) ? (s32)ONE_OF(1, 16) : -1; break;
		default: a->flags = (u32)random_u64(); break;
		}
	call_end();
}

static void create(void)
{
	u64 bytes = some_size();

	if (random_chance(25)) {
		struct nvmap_create_handle *a = CALL(struct nvmap_create_handle, node(), NVMAP_IOC_CREATE);

		bytes = bytes >> 32 != 0 ? 0 : bytes;
		a->size = (u32)bytes;
		call_makes(&a->handle);
	} else {
		struct nvmap_create_handle *a = CALL(struct nvmap_create_handle, node(), NVMAP_IOC_CREATE_64);

		a->size64 = bytes;
		call_makes(&a->handle64);
	}
	if (call_end() != 0)
		return;
	hold(&handles, call_made(), PAGE_ALIGN(bytes), HANDLE_NONE);
	if (random_chance(60))
		alloc(call_made());
}

static void free_something(void)
{
	u32 *number = call_begin(node(), "NVMAP_IOC_FREE", NVMAP_IOC_FREE);
	u32 i = (u32)random_below(handles.count);

	/* A descriptor is closed. */
	if (files.count > 0 && random_chance(4)) {
		i = (u32)random_below(files.count);
		call_descriptor(number, files.at[i]);
		drop(&files, i);
	} else if (handles.count > 0 && !random_chance(4)) {
		call_descriptor(number, handles.at[i]);
		if (!random_chance(10))
			drop(&handles, i);
	} else if (random_chance(50))
		call_descriptor(number, random_chance(50) ? node() : HANDLE_NONE);
	call_end();
}

static void get_fd(void)
{
	struct nvmap_create_handle *a = CALL(struct nvmap_create_handle, node(), NVMAP_IOC_GET_FD);
	u64 bytes;
	/* A descriptor in place of the handle ends the sequence: not every time. */
	int handle = random_chance(80) ? one(&handles, &bytes) : some_handle(&bytes);

	call_descriptor(&a->handle, handle);
	a->fd = (s32)random_below(2);
	call_makes(&a->fd);
	if (call_end() == 0)
		hold(&files, call_made(), bytes, handle);
}

static void from_fd(void)
{
	struct nvmap_create_handle *a = CALL(struct nvmap_create_handle, node(), NVMAP_IOC_FROM_FD);
	u64 bytes;
	int file = one(&files, &bytes);

	call_descriptor(&a->fd, wrong() ? some_handle(&bytes) : file);
	a->handle = (u32)random_below(2);
	call_makes(&a->handle);
	if (call_end() == 0)
		hold(&handles, call_made(), bytes, HANDLE_NONE);
}

static void duplicate(void)
{
	struct nvmap_duplicate_handle *a = CALL(struct nvmap_duplicate_handle, node(), NVMAP_IOC_DUP_HANDLE);
	u64 bytes;

	call_descriptor(&a->handle, some_handle(&bytes));
	a->access_flags = ONE_OF(NVMAP_HANDLE_RO, NVMAP_HANDLE_RO, 0, 1, 2, 3, NVMAP_HANDLE_RO | 1);
	call_makes(&a->dup_handle);
	if (call_end() == 0)
		hold(&handles, call_made(), bytes, HANDLE_NONE);
}

static void parameters(void)
{
	struct nvmap_handle_parameters *a = CALL(struct nvmap_handle_parameters, node(), NVMAP_IOC_PARAMETERS);
	u64 bytes;

	/* What nvmap does not set stays as it is. */
	if (random_chance(20))
		memset(a, 0x5a, sizeof(*a));
	call_descriptor(&a->handle, some_handle(&bytes));
	call_end();
}

static void transfer(void)
{
	bool reads = random_chance(50);
	struct nvmap_rw_handle *a = reads ? CALL(struct nvmap_rw_handle, node(), NVMAP_IOC_READ) : CALL(struct nvmap_rw_handle, node(), NVMAP_IOC_WRITE);
	u64 bytes, extent;
	u8 *memory;

	call_descriptor(&a->handle, some_handle(&bytes));
	a->elem_size = 1 + random_below(24);
	a->count = 1 + random_below(6);
	a->hmem_stride = a->elem_size + (random_chance(50) ? 0 : random_below(200));
	a->user_stride = a->elem_size + (random_chance(50) ? 0 : random_below(20));
	a->offset = random_below(random_chance(80) ? 64 : 4096);
	if (wrong())
		switch (random_below(8)) {
		case 0: a->elem_size = ONE_OF(0, 30) + (random_chance(20) ? 1UL << 61 : 0); break;
		case 1: a->count = random_chance(50) ? 0 : 1UL << 61; break;
		case 2: a->hmem_stride = random_chance(50) ? 0 : 1UL << 63; break;
		case 3: a->user_stride = 0; break;
		case 4: a->offset = bytes - random_below(64); break;
		case 5: a->offset = bytes + random_below(64); break;
		case 6: a->elem_size = a->hmem_stride = a->user_stride = 8UL << 58; a->count = 8; break;
		default: a->offset = ~0UL - random_below(32);
		}
	/* What nvmap refuses needs no memory. */
	extent = a->user_stride * (a->count - 1) + a->elem_size;
	if (random_chance(4)) {
		if (random_chance(70))
			call_no_memory(&a->addr);
	} else {
		memory = call_memory(&a->addr, extent < 512 ? (u32)extent : 16);
		for (u64 i = 0; i < extent && extent < 512 && !reads; i++)
			memory[i] = (u8)random_u64();
	}
	call_end();
}

static void cache(void)
{
	bool wide = random_chance(50);
	u64 bytes, length;
	int mapping = one(&mappings, &length), handle = mapping == HANDLE_NONE || random_chance(15) ? some_handle(&bytes) : mappings.handle[chosen];
	struct nvmap_cache_op_64 *a = wide ? CALL(struct nvmap_cache_op_64, node(), NVMAP_IOC_CACHE_64) : CALL(struct nvmap_cache_op_64, node(), NVMAP_IOC_CACHE);
	struct nvmap_cache_op *narrow = (void *)a;
	u64 offset = random_chance(60) ? 0 : random_below(length + 64), len = random_chance(50) ? length : random_below(2 * length);
	s32 op = wrong() ? (s32)ONE_OF(3, (u32)-1) : (s32)random_below(3);

	if (mapping != HANDLE_NONE && !random_chance(10))
		call_mapped(&a->addr, mapping, calls_address(mapping), offset >= length ? 0 : offset);
	else if (random_chance(50))
		call_no_memory(&a->addr);
	call_descriptor(&a->handle, handle);
	if (wide) {
		a->len = random_chance(5) ? ~0UL : len;
		a->op = op;
	} else {
		narrow->len = (u32)len;
		narrow->op = op;
	}
	call_end();
}

static void cache_list(void)
{
	struct nvmap_cache_op_list *a = CALL(struct nvmap_cache_op_list, node(), NVMAP_IOC_CACHE_LIST);
	u32 count = 1 + (u32)random_below(4);
	int list[4];
	u64 bytes;

	for (u32 i = 0; i < count; i++)
		list[i] = random_chance(90) ? one(&handles, &bytes) : some_handle(&bytes);
	a->op = (s32)random_below(3);
	if (wrong())
		a->op = (s32)ONE_OF(3, 0x80000000, 0x80000001, 0x7fffffff);
	a->nr = count;
	switch (random_below(24)) {
	case 0: break;
	case 1: call_no_memory(&a->handles); break;
	default: call_descriptors(&a->handles, list, count);
	}
	switch (random_below(24)) {
	case 0: break;
	case 1: call_no_memory(&a->offsets); break;
	default: call_memory(&a->offsets, 32);
	}
	switch (random_below(24)) {
	case 0: break;
	case 1: call_no_memory(&a->sizes); break;
	default: call_memory(&a->sizes, 32);
	}
	if (random_chance(5))
		a->nr = ONE_OF(0, 0x40000000, 0xffffffff, 0x80000001);
	call_end();
}

static void heaps(void)
{
	switch (random_below(3)) {
	case 0:
		CALL(struct nvmap_available_heaps, node(), NVMAP_IOC_GET_AVAILABLE_HEAPS)->heaps = random_below(2);
		break;
	case 1:
		CALL(struct nvmap_heap_size, node(), NVMAP_IOC_GET_HEAP_SIZE)->heap =
			ONE_OF(NVMAP_HEAP_CARVEOUT_VPR, NVMAP_HEAP_CARVEOUT_FSI, NVMAP_HEAP_IOVMM, 0, 0xffffffff, NVMAP_HEAP_CARVEOUT_IVM);
		break;
	default: {
		struct nvmap_query_heap_params *a = CALL(struct nvmap_query_heap_params, node(), NVMAP_IOC_QUERY_HEAP_PARAMS);

		if (random_chance(20))
			memset(a, 0x5a, sizeof(*a));
		a->heap_mask = ONE_OF(NVMAP_HEAP_CARVEOUT_VPR, NVMAP_HEAP_CARVEOUT_FSI, NVMAP_HEAP_IOVMM, NVMAP_HEAP_IOVMM, 0, NVMAP_HEAP_CARVEOUT_GENERIC,
				      NVMAP_HEAP_CARVEOUT_FSI | NVMAP_HEAP_IOVMM, 0x80000000, NVMAP_HEAP_CARVEOUT_IVM);
		/* Of all the system. */
		if (a->heap_mask == NVMAP_HEAP_IOVMM)
			call_ignore(&a->free, 8);
	}
	}
	call_end();
}

static void others(void)
{
	if (random_chance(50)) {
		struct nvmap_set_tag_label *a = CALL(struct nvmap_set_tag_label, node(), NVMAP_IOC_SET_TAG_LABEL);

		a->tag = (u32)random_below(4);
		a->len = ONE_OF(0, 5, 63, 64, 1000);
		if (random_chance(80))
			call_memory(&a->addr, 64);
		else
			call_no_memory(&a->addr);
	} else
		call_begin(node(), "unknown", ONE_OF(_IO('N', 5), _IO('N', 99), _IO('N', 108), _IO('G', 1), _IOWR('N', 0, u32), NVMAP_IOC_PARAM,
			NVMAP_IOC_FROM_ID, NVMAP_IOC_GET_ID, _IOW('N', 105, struct nvmap_query_heap_params), _IOR('N', 3, u64), _IOW('N', 4, u32)));
	call_end();
}

static void map(void)
{
	u64 bytes;
	int file = one(&files, &bytes), handle = files.handle[chosen];
	u64 page = random_chance(85) ? 0 : random_below(3), length = bytes - page * PAGE_SIZE;

	if (random_chance(10))
		length = PAGE_SIZE * (1 + random_below(3));
	if (file == HANDLE_NONE || length == 0 || length > 64UL << 20 || mappings.count == MOST)
		return;
	hold(&mappings, calls_map(file, length, page, random_chance(70)), length, handle);
}

static void touch(void)
{
	u64 bytes;
	int mapping = one(&mappings, &bytes);
	u32 word = (u32)random_u64();

	if (mapping != HANDLE_NONE)
		calls_touch(mapping, (u32)random_below(64) * 4, random_chance(50) ? &word : NULL);
}

static void close_something(void)
{
	u32 i;

	if (nodes.count > 1 && random_chance(20)) {
		calls_close(nodes.at[i = (u32)random_below(nodes.count)]);
		drop(&nodes, i);
	} else if (mappings.count > 0 && random_chance(35)) {
		calls_unmap(mappings.at[i = (u32)random_below(mappings.count)]);
		drop(&mappings, i);
	} else if (files.count > 0) {
		calls_close(files.at[i = (u32)random_below(files.count)]);
		drop(&files, i);
	}
}

static void one_request(void)
{
	static void (*const requests[])(void) = {
		create, create, get_fd, get_fd, from_fd, duplicate, parameters, parameters, transfer, transfer, transfer, cache, cache,
		cache_list, heaps, others, map, map, touch, touch, close_something, free_something,
	};
	u64 bytes;
	u32 dice = (u32)random_below(ARRAY_SIZE(requests) + 3);

	if (handles.count == 0 || (dice < 2 && handles.count >= MOST - 2))
		dice = handles.count == 0 ? 0 : ARRAY_SIZE(requests) - 1;
	if (dice < ARRAY_SIZE(requests))
		requests[dice]();
	else
		alloc(dice == ARRAY_SIZE(requests) ? some_handle(&bytes) : handles.at[handles.count - 1 - random_below(handles.count > 3 ? 3 : handles.count)]);
	if (random_chance(1) && nodes.count < 4)
		hold(&nodes, calls_open(), 0, HANDLE_NONE);
}

static void sequence(u64 seed)
{
	u32 calls;

	random_seed(seed);
	memory_new();
	kernel_new();
	calls_reset(stdout);
	printf("S %lx\n", seed);
	hold(&nodes, calls_open(), 0, HANDLE_NONE);
	calls = random_chance(90) ? 40 + (u32)random_below(80) : 150 + (u32)random_below(150);
	for (u32 i = 0; i < calls && !calls_stopped(); i++)
		one_request();
}

int main(int argc, char **argv)
{
	u64 first, count;

	if (argc != 3) {
		fprintf(stderr, "usage: memory-requests FIRST COUNT\n");
		return 2;
	}
	first = strtoull(argv[1], NULL, 0);
	count = strtoull(argv[2], NULL, 0);
	/* Each on a machine of its own: nvmap keeps what it counts for as long as it is loaded. */
	for (u64 seed = first; seed < first + count; seed++) {
		int status = 0;
		pid_t child = fork();

		if (child == 0) {
			sequence(seed);
			exit(fflush(stdout) != 0);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
			fprintf(stderr, "seed %lx: status %x\n", seed, status);
			return 3;
		}
	}
	return 0;
}
