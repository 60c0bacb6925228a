#include "calls.h"
#include "machine.h"
#include "oracle.h"

#include <linux/kernel-services.h>
#include "os/linux/dmabuf_priv.h"
#include <stdlib.h>

extern const struct file_operations gk20a_ctrl_ops, gk20a_dbg_ops;

static struct {
	FILE *out;
	bool stopped;
	int files;
	struct vm_area_struct vma[16];
	bool mapped[16];
	int mappings;
	int mapping_of[256];
	struct mm_struct mm;
} now;

void calls_reset(FILE *out)
{
	memset(&now, 0, sizeof(now));
	now.out = out;
	marks_reset(out);
}

bool calls_stopped(void) { return now.stopped; }

/* Runs what follows; false when the driver ran into BUG(), which is recorded. */
#define SURVIVES (setjmp(os_bug) == 0 || bug())

static bool bug(void)
{
	fprintf(now.out, " = !BUG %s\n", os_bug_where);
	now.stopped = true;
	return false;
}

static void answer(int err)
{
	if (err == 0)
		fprintf(now.out, " = 0\n");
	else
		fprintf(now.out, " = !%d\n", err);
}

int calls_open(const char *node)
{
	int fd;

	fprintf(now.out, "O %s", node);
	if (!SURVIVES)
		return HANDLE_NONE;
	fd = files_open(strcmp(node, "ctrl") == 0 ? &gk20a_ctrl_ops : &gk20a_dbg_ops, machine_node());
	if (fd < 0) {
		answer(-fd);
		return HANDLE_NONE;
	}
	fprintf(now.out, " = f%d\n", now.files);
	return now.files++;
}

void calls_close(int file)
{
	fprintf(now.out, "C f%d", file);
	if (!SURVIVES)
		return;
	files_close(FILES_FIRST + file);
	files_release();
	answer(0);
}

void calls_map_doorbell(int file, u64 bytes, u64 page)
{
	struct vm_area_struct *vma;
	struct file *opened = files_get(FILES_FIRST + file);
	int err;

	if (now.mappings == 16)
		return;
	vma = &now.vma[now.mappings];
	vma->vm_start = 0x10000000;
	vma->vm_end = vma->vm_start + bytes;
	vma->vm_pgoff = page;
	vma->vm_mm = &now.mm;
	fprintf(now.out, "D f%d %llx %llx", file, bytes, page);
	if (!SURVIVES)
		return;
	err = -opened->f_op->mmap(opened, vma);
	if (err == 0) {
		now.mapping_of[file] = ++now.mappings;
	}
	answer(err);
}

void calls_unmap_doorbell(int file)
{
	int mapping = now.mapping_of[file];

	if (mapping == 0)
		return;
	now.mapping_of[file] = 0;
	fprintf(now.out, "U f%d", file);
	now.vma[mapping - 1].vm_ops->close(&now.vma[mapping - 1]);
	answer(0);
}

int calls_new_buffer(u64 bytes, bool read_only)
{
	struct dma_buf *buf = memory_new_buffer(bytes, 64, read_only);

	fprintf(now.out, "B %llx %d\n", bytes, read_only);
	return HANDLE_BUFFER(buf->number);
}

static u8 *content(int buffer) { return gk20a_dmabuf_vmap(memory_buffer((u32)(-2 - buffer))); }

void calls_write_word(int buffer, u32 offset, u32 word)
{
	fprintf(now.out, "W b%d %x %x\n", -2 - buffer, offset, word);
	memcpy(content(buffer) + offset, &word, sizeof(word));
}

/* Without the time of the notification, which is the first 8 bytes. */
void calls_read_notifier(int buffer, u32 offset)
{
	u32 words[2];

	memcpy(words, content(buffer) + offset + 8, sizeof(words));
	fprintf(now.out, "Q b%d %x = %x %x\n", -2 - buffer, offset, words[0], words[1]);
}

/* A number that is no descriptor's. */
#define NO_DESCRIPTOR 0x7fff0000

int call_value(int handle)
{
	if (handle == HANDLE_NONE)
		return NO_DESCRIPTOR;
	return handle >= 0 ? FILES_FIRST + handle : 100 + (-2 - handle);
}

int call_name(int value)
{
	now.files = value - FILES_FIRST + 1;
	return value - FILES_FIRST;
}

bool call_perform(int number, u32 request, void *argument, long *result)
{
	struct file *file = files_get(FILES_FIRST + number);

	if (!SURVIVES)
		return false;
	if (file == NULL) {
		fprintf(stderr, "a call on a closed file\n");
		exit(3);
	}
	*result = file->f_op->unlocked_ioctl(file, request, (unsigned long)(uintptr_t)argument);
	files_release();
	return true;
}
