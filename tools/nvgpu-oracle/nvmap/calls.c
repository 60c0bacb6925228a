#include "calls.h"
#include "machine.h"

#include <setjmp.h>
#include <linux/nvmap.h>

#define MAPPINGS 64

static struct {
	FILE *out;
	bool stopped;
	int handles, mappings;
	struct vm_area_struct *vma[MAPPINGS];
	/* What nvmap named the handles, in the order of their making. */
	u32 ids[1024];
} now;

static jmp_buf end;

void kernel_bug(const char *where)
{
	fprintf(now.out, " = !BUG %s\n", where);
	now.stopped = true;
	longjmp(end, 1);
}

void calls_reset(FILE *out)
{
	now.out = out;
	marks_reset(out);
}

bool calls_stopped(void) { return now.stopped; }

static void answer(int err) { fprintf(now.out, err == 0 ? " = 0\n" : " = !%d\n", err); }

int calls_open(void)
{
	int fd = kernel_open();

	fprintf(now.out, "O nvmap = f%d\n", fd - FILES_FIRST);
	return fd - FILES_FIRST;
}

void calls_close(int file)
{
	fprintf(now.out, "C f%d", file);
	if (setjmp(end) != 0)
		return;
	close_fd(FILES_FIRST + (u32)file);
	kernel_return();
	answer(0);
}

int calls_map(int file, u64 bytes, u64 page, bool writes)
{
	int err;

	fprintf(now.out, "M f%d %lx %lx %d", file, bytes, page, writes);
	if (setjmp(end) != 0)
		return HANDLE_NONE;
	err = -kernel_mmap(kernel_file(FILES_FIRST + file), bytes, page, writes, &now.vma[now.mappings]);
	answer(err);
	return err == 0 ? now.mappings++ : HANDLE_NONE;
}

void calls_unmap(int mapping)
{
	fprintf(now.out, "U m%d", mapping);
	if (setjmp(end) != 0)
		return;
	kernel_munmap(now.vma[mapping]);
	kernel_return();
	answer(0);
}

void calls_touch(int mapping, u32 offset, const u32 *word)
{
	u32 *at = kernel_touch(now.vma[mapping], offset);

	/* SIGBUS, or SIGSEGV. */
	if (at == NULL || (word != NULL && (now.vma[mapping]->vm_flags & VM_WRITE) == 0))
		return;
	if (word == NULL)
		fprintf(now.out, "Q m%d %x = %x\n", mapping, offset, *at);
	else
		fprintf(now.out, "W m%d %x %x\n", mapping, offset, *at = *word);
}

u64 calls_address(int mapping) { return now.vma[mapping]->vm_start; }

/* A number that is neither a descriptor's nor a handle's. */
#define NO_DESCRIPTOR 0x7fff0000

int call_value(int handle)
{
	if (handle == HANDLE_NONE)
		return NO_DESCRIPTOR;
	return handle >= 0 ? FILES_FIRST + handle : (int)now.ids[-2 - handle];
}

/* Handles start at the half of all numbers (nvmap_id_array.c). */
int call_name(int value)
{
	if ((u32)value < U32_MAX / 2)
		return value - FILES_FIRST;
	now.ids[now.handles] = (u32)value;
	return HANDLE_BUFFER(now.handles++);
}

bool call_perform(int number, u32 request, void *argument, long *result)
{
	struct file *file = kernel_file(FILES_FIRST + number);
	unsigned long value = request == NVMAP_IOC_FREE ? *(u32 *)argument : (unsigned long)argument;
	long references = kernel_references();

	if (setjmp(end) != 0)
		return false;
	*result = file->f_op->unlocked_ioctl(file, request, value);
	if (*result != 0 && kernel_references() != references)
		kernel_bug("a refused call changed the references to a file");
	kernel_return();
	return true;
}
