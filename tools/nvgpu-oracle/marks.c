#include "marks.h"

#include <linux/ioctl.h>
#include <string.h>

#define ARGUMENT_BYTES 1024
#define MEMORIES 4
#define MEMORY_BYTES 4096
#define MARKS 16

struct mark {
	/* 'd' descriptor, 'p' memory, 'a' array of descriptors, 'z' no memory, 'u' a mapping, 'n' what the call makes, '~' not compared */
	char kind;
	/* Which memory it lies in; -1 for the argument. */
	int memory;
	u32 offset, bytes;
	int handles[8];
	/* Of a mapping. */
	u64 into;
};

static struct {
	FILE *out;
	int file;
	const char *name;
	u32 request;
	union {
		u8 bytes[ARGUMENT_BYTES];
		u64 aligned;
	} argument;
	union {
		u8 bytes[MEMORY_BYTES];
		u64 aligned;
	} memory[MEMORIES];
	u32 memory_bytes[MEMORIES];
	int memories;
	struct mark marks[MARKS];
	int mark_count;
	int made;
} now;

void marks_reset(FILE *out)
{
	memset(&now, 0, sizeof(now));
	now.out = out;
}

void *call_begin(int file, const char *name, u32 request)
{
	now.file = file;
	now.name = name;
	now.request = request;
	now.memories = 0;
	now.mark_count = 0;
	now.made = HANDLE_NONE;
	memset(&now.argument, 0, sizeof(now.argument));
	return now.argument.bytes;
}

static struct mark *mark(char kind, void *at, u32 bytes)
{
	struct mark *mark = &now.marks[now.mark_count++];

	memset(mark, 0, sizeof(*mark));
	mark->kind = kind;
	mark->memory = -1;
	mark->bytes = bytes;
	mark->offset = (u32)((u8 *)at - now.argument.bytes);
	for (int i = 0; i < now.memories; i++)
		if ((u8 *)at >= now.memory[i].bytes && (u8 *)at < now.memory[i].bytes + MEMORY_BYTES) {
			mark->memory = i;
			mark->offset = (u32)((u8 *)at - now.memory[i].bytes);
		}
	return mark;
}

void call_descriptor(void *at, int handle)
{
	int fd = call_value(handle);

	memcpy(at, &fd, sizeof(fd));
	mark('d', at, 4)->handles[0] = handle;
}

void *call_memory(void *at, u32 bytes)
{
	u64 address = (u64)(uintptr_t)now.memory[now.memories].bytes;

	memset(&now.memory[now.memories], 0, MEMORY_BYTES);
	now.memory_bytes[now.memories] = bytes;
	memcpy(at, &address, sizeof(address));
	mark('p', at, bytes);
	return now.memory[now.memories++].bytes;
}

void call_descriptors(void *at, const int *handles, u32 count)
{
	int fds[8];
	u64 address = (u64)(uintptr_t)now.memory[now.memories].bytes;
	struct mark *array;

	memcpy(at, &address, sizeof(address));
	array = mark('a', at, count);
	for (u32 i = 0; i < count; i++) {
		array->handles[i] = handles[i];
		fds[i] = call_value(handles[i]);
	}
	memcpy(now.memory[now.memories].bytes, fds, sizeof(int) * count);
	now.memory_bytes[now.memories++] = 0;
}

void call_no_memory(void *at)
{
	const u64 address = 16;

	memcpy(at, &address, sizeof(address));
	mark('z', at, 8);
}

void call_mapped(void *at, int mapping, u64 address, u64 offset)
{
	struct mark *m;

	address += offset;
	memcpy(at, &address, sizeof(address));
	m = mark('u', at, 8);
	m->handles[0] = mapping;
	m->into = offset;
}

void call_makes(void *at) { mark('n', at, 4); }
void call_ignore(void *at, u32 bytes) { mark('~', at, bytes); }
int call_made(void) { return now.made; }
void *call_answer(void) { return now.argument.bytes; }

static void print_handle(int handle)
{
	if (handle == HANDLE_NONE)
		fprintf(now.out, "x");
	else if (handle >= 0)
		fprintf(now.out, "f%d", handle);
	else
		fprintf(now.out, "b%d", -2 - handle);
}

/* Bytes as hexadecimal digits, without the zeros at the end. */
static void print_bytes(const u8 *bytes, u32 count)
{
	while (count > 0 && bytes[count - 1] == 0)
		count--;
	if (count == 0)
		fprintf(now.out, "-");
	for (u32 i = 0; i < count; i++)
		fprintf(now.out, "%02x", bytes[i]);
}

/* Where a mark's field lies in a copy of the argument or of a memory. */
static void blank(u8 *bytes, int memory, const char *kinds)
{
	for (int i = 0; i < now.mark_count; i++) {
		const struct mark *m = &now.marks[i];

		if (m->memory == memory && strchr(kinds, m->kind) != NULL)
			memset(bytes + m->offset, 0, m->kind == 'd' || m->kind == 'n' ? 4 : m->kind == '~' ? m->bytes : 8);
	}
}

static void print_call(u32 bytes)
{
	u8 shown[ARGUMENT_BYTES];

	fprintf(now.out, "I f%d %s %x ", now.file, now.name, now.request);
	memcpy(shown, now.argument.bytes, sizeof(shown));
	blank(shown, -1, "dpazu");
	print_bytes(shown, bytes);
	for (int i = 0; i < now.mark_count; i++) {
		const struct mark *m = &now.marks[i];

		if (m->memory >= 0)
			continue;
		fprintf(now.out, " %c%x=", m->kind, m->offset);
		if (m->kind == 'd')
			print_handle(m->handles[0]);
		else if (m->kind == 'p' || m->kind == '~')
			fprintf(now.out, "%x", m->bytes);
		else if (m->kind == 'u')
			fprintf(now.out, "m%d+%llx", m->handles[0], (unsigned long long)m->into);
		else if (m->kind == 'a')
			for (u32 k = 0; k < m->bytes; k++) {
				fprintf(now.out, k == 0 ? "" : ",");
				print_handle(m->handles[k]);
			}
	}
	/* What is in memory before the call, and what of it is not compared. */
	for (int i = 0; i < now.memories; i++) {
		if (now.memory_bytes[i] == 0)
			continue;
		fprintf(now.out, " i%d=", i);
		print_bytes(now.memory[i].bytes, now.memory_bytes[i]);
		for (int k = 0; k < now.mark_count; k++)
			if (now.marks[k].memory == i)
				fprintf(now.out, " j%d=%x+%x", i, now.marks[k].offset, now.marks[k].bytes);
	}
}

static void print_answer(u32 bytes)
{
	u8 shown[MEMORY_BYTES];

	memcpy(shown, now.argument.bytes, ARGUMENT_BYTES);
	blank(shown, -1, "dpazun~");
	print_bytes(shown, bytes);
	for (int i = 0; i < now.mark_count; i++)
		if (now.marks[i].kind == 'n') {
			int value;

			memcpy(&value, now.argument.bytes + now.marks[i].offset, sizeof(value));
			now.made = call_name(value);
			fprintf(now.out, " ");
			print_handle(now.made);
		}
	for (int i = 0; i < now.memories; i++)
		if (now.memory_bytes[i] > 0) {
			memcpy(shown, now.memory[i].bytes, MEMORY_BYTES);
			blank(shown, i, "~");
			fprintf(now.out, " m%d=", i);
			print_bytes(shown, now.memory_bytes[i]);
		}
	fprintf(now.out, "\n");
}

int call_end(void)
{
	/* A request without an argument has its value instead. */
	u32 bytes = _IOC_SIZE(now.request) == 0 ? 4 : _IOC_SIZE(now.request);
	u8 before[ARGUMENT_BYTES];
	long result;

	print_call(bytes);
	memcpy(before, now.argument.bytes, sizeof(before));
	if (!call_perform(now.file, now.request, now.argument.bytes, &result))
		return -1;
	fprintf(now.out, " = ");
	if (result == 0) {
		print_answer(bytes);
		return 0;
	}
	if (result > 0) {
		fprintf(now.out, "+%lx\n", result);
		return -1;
	}
	fprintf(now.out, "!%ld", -result);
	if (memcmp(before, now.argument.bytes, bytes) != 0) {
		fprintf(now.out, " ");
		print_answer(bytes);
	} else
		fprintf(now.out, "\n");
	return (int)-result;
}
