/* The descriptors of the modelled process: nodes that it opened, and what the driver gave it. */
#include "oracle.h"

#include <linux/kernel-services.h>
#include <stdlib.h>

#define FILES 256

static struct file files[FILES];
static u32 file_count;
/* Files without a reference: as in a kernel, they end when the call returns to the process. */
static struct file *pending[FILES];
static u32 pending_count;

void files_reset(void)
{
	memset(files, 0, sizeof(files));
	file_count = 0;
	pending_count = 0;
}

static struct file *find(int fd)
{
	if (fd < FILES_FIRST || fd >= FILES_FIRST + (int)file_count || files[fd - FILES_FIRST].references == 0)
		return NULL;
	return &files[fd - FILES_FIRST];
}

int files_open(const struct file_operations *operations, struct cdev *cdev)
{
	struct inode inode = { cdev };
	int fd = get_unused_fd_flags(0), err;
	struct file *file = anon_inode_getfile("", operations, NULL, 0);

	err = operations->open(&inode, file);
	if (err != 0) {
		put_unused_fd(fd);
		return err;
	}
	fd_install(fd, file);
	return fd;
}

struct file *files_get(int fd) { return find(fd); }
int files_is_open(int fd) { return find(fd) != NULL; }

void files_close(int fd)
{
	struct file *file = find(fd);

	if (file != NULL)
		fput(file);
}

struct file *fget(int fd)
{
	struct file *file = find(fd);
	struct dma_buf *buf;

	if (file != NULL) {
		file->references++;
		return file;
	}
	buf = fd < 100 ? NULL : memory_buffer((u32)fd - 100);
	return buf == NULL ? NULL : &buf->file_storage;
}

void fput(struct file *file)
{
	if (file < files || file >= files + FILES || --file->references > 0)
		return;
	if (pending_count < FILES)
		pending[pending_count++] = file;
}

void files_release(void)
{
	while (pending_count > 0) {
		struct file *file = pending[--pending_count];

		if (file->f_op->release != NULL)
			file->f_op->release(NULL, file);
	}
}

/* A number is used once: the next descriptor is the next file. */
int get_unused_fd_flags(unsigned int flags)
{
	(void)flags;
	if (file_count == FILES) {
		fprintf(stderr, "too many files\n");
		exit(3);
	}
	return FILES_FIRST + (int)file_count;
}

void put_unused_fd(int fd) { (void)fd; }

struct file *anon_inode_getfile(const char *name, const struct file_operations *operations, void *data, int flags)
{
	struct file *file = &files[file_count];

	(void)name;
	(void)flags;
	memset(file, 0, sizeof(*file));
	file->f_mode = FMODE_READ | FMODE_WRITE;
	file->f_op = operations;
	file->private_data = data;
	file->references = 1;
	return file;
}

void fd_install(int fd, struct file *file)
{
	(void)fd;
	(void)file;
	file_count++;
}
