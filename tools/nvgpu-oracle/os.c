/*
 * The kernel under the driver: memory, time, locks, the log. One thread, virtual time.
 */
#include "oracle.h"

#include <nvgpu/bug.h>
#include <nvgpu/gk20a.h>
#include <nvgpu/kmem.h>
#include <nvgpu/lock.h>
#include <nvgpu/log.h>
#include <nvgpu/timers.h>
#include <stdlib.h>

/* The largest piece that the kernel's kmalloc() gives with 4 KiB pages. */
#define KMALLOC_MAX (4UL << 20)

jmp_buf os_bug;
const char *os_bug_where = "";
static FILE *log_out;
static u64 now_ns = 1000000000ULL;

/* ---- memory: freed pieces stay until the end, so that a use after free reads what was there ---- */

struct piece {
	struct piece *next;
	max_align_t bytes[];
};
static struct piece *pieces;

static void *take(size_t bytes)
{
	struct piece *piece = calloc(1, sizeof(*piece) + bytes);

	if (piece == NULL) {
		fprintf(stderr, "out of memory\n");
		exit(3);
	}
	piece->next = pieces;
	pieces = piece;
	return piece->bytes;
}

void os_reset(void)
{
	while (pieces != NULL) {
		struct piece *next = pieces->next;

		free(pieces);
		pieces = next;
	}
	now_ns = 1000000000ULL;
	os_bug_where = "";
}

void *nvgpu_kmalloc_impl(struct gk20a *g, size_t size, void *ip)
{
	(void)g;
	(void)ip;
	return size > KMALLOC_MAX ? NULL : take(size);
}

void *nvgpu_kzalloc_impl(struct gk20a *g, size_t size, void *ip)
{
	return nvgpu_kmalloc_impl(g, size, ip);
}

void *nvgpu_kcalloc_impl(struct gk20a *g, size_t n, size_t size, void *ip)
{
	return nvgpu_kmalloc_impl(g, n * size, ip);
}

void *nvgpu_vzalloc_impl(struct gk20a *g, unsigned long size, void *ip)
{
	(void)g;
	(void)ip;
	return take(size);
}

void *nvgpu_big_alloc_impl(struct gk20a *g, size_t size, bool clear)
{
	(void)clear;
	return nvgpu_vzalloc_impl(g, size, NULL);
}

void nvgpu_kfree_impl(struct gk20a *g, void *addr) { (void)g; (void)addr; }
void nvgpu_vfree_impl(struct gk20a *g, void *addr) { (void)g; (void)addr; }
void nvgpu_big_free(struct gk20a *g, void *addr) { (void)g; (void)addr; }

struct nvgpu_kmem_cache {
	size_t size;
};

struct nvgpu_kmem_cache *nvgpu_kmem_cache_create(struct gk20a *g, size_t size)
{
	struct nvgpu_kmem_cache *cache = take(sizeof(*cache));

	(void)g;
	cache->size = size;
	return cache;
}

void nvgpu_kmem_cache_destroy(struct nvgpu_kmem_cache *cache) { (void)cache; }
void *nvgpu_kmem_cache_alloc(struct nvgpu_kmem_cache *cache) { return take(cache->size); }
void nvgpu_kmem_cache_free(struct nvgpu_kmem_cache *cache, void *ptr) { (void)cache; (void)ptr; }

/* ---- the end ---- */

void nvgpu_posix_bug(const char *msg, int line_no)
{
	(void)line_no;
	os_bug_where = msg;
	longjmp(os_bug, 1);
}

bool nvgpu_posix_warn(const char *func, int line_no, bool cond, const char *fmt, ...)
{
	(void)line_no;
	(void)fmt;
	if (cond && log_out != NULL)
		fprintf(log_out, "WARNING: in %s\n", func);
	return cond;
}

void dump_stack(void) {}

/* ---- locks: a second acquire by the only thread is a deadlock ---- */

void nvgpu_mutex_init(struct nvgpu_mutex *mutex)
{
	pthread_mutex_init(&mutex->lock.mutex, NULL);
}

void nvgpu_mutex_destroy(struct nvgpu_mutex *mutex) { (void)mutex; }

void nvgpu_mutex_acquire(struct nvgpu_mutex *mutex)
{
	if (pthread_mutex_trylock(&mutex->lock.mutex) != 0)
		nvgpu_posix_bug("deadlock", 0);
}

int nvgpu_mutex_tryacquire(struct nvgpu_mutex *mutex)
{
	return pthread_mutex_trylock(&mutex->lock.mutex) == 0;
}

void nvgpu_mutex_release(struct nvgpu_mutex *mutex)
{
	pthread_mutex_unlock(&mutex->lock.mutex);
}

void nvgpu_spinlock_init(struct nvgpu_spinlock *spinlock)
{
	pthread_mutex_init(&spinlock->lock.mutex, NULL);
}

void nvgpu_spinlock_acquire(struct nvgpu_spinlock *spinlock)
{
	if (pthread_mutex_trylock(&spinlock->lock.mutex) != 0)
		nvgpu_posix_bug("deadlock", 0);
}

void nvgpu_spinlock_release(struct nvgpu_spinlock *spinlock)
{
	pthread_mutex_unlock(&spinlock->lock.mutex);
}

/* ---- time: passes only when somebody sleeps ---- */

u64 os_now(void) { return now_ns; }
s64 nvgpu_current_time_ns(void) { return (s64)now_ns; }
s64 nvgpu_current_time_us(void) { return (s64)(now_ns / 1000); }
s64 nvgpu_current_time_ms(void) { return (s64)(now_ns / 1000000); }
void nvgpu_msleep(unsigned int msecs) { now_ns += msecs * 1000000ULL; }
void nvgpu_udelay(unsigned int usecs) { now_ns += usecs * 1000ULL; }
void nvgpu_usleep_range(unsigned int min_us, unsigned int max_us) { (void)max_us; now_ns += min_us * 1000ULL; }

void nvgpu_timeout_init_cpu_timer(struct gk20a *g, struct nvgpu_timeout *timeout, u32 duration_ms)
{
	memset(timeout, 0, sizeof(*timeout));
	timeout->g = g;
	timeout->flags = NVGPU_TIMER_CPU_TIMER;
	timeout->time_duration = (s64)(now_ns + duration_ms * 1000000ULL);
}

void nvgpu_timeout_init_retry(struct gk20a *g, struct nvgpu_timeout *timeout, u32 duration_count)
{
	memset(timeout, 0, sizeof(*timeout));
	timeout->g = g;
	timeout->flags = NVGPU_TIMER_RETRY_TIMER;
	timeout->retries.max_attempts = duration_count;
}

bool nvgpu_timeout_peek_expired(struct nvgpu_timeout *timeout)
{
	if (timeout->flags & NVGPU_TIMER_RETRY_TIMER)
		return timeout->retries.attempted >= timeout->retries.max_attempts;
	return (s64)now_ns > timeout->time_duration;
}

/* ---- the log, in the form of the driver's Linux build ---- */

/* Bytes of a message with its end; the rest of a longer one is lost. */
#define LOG_BYTES 160

void os_log_to(FILE *out) { log_out = out; }

void nvgpu_log_msg_impl(struct gk20a *g, const char *func_name, int line, enum nvgpu_log_type type, const char *fmt, ...)
{
	static const char *const levels[] = { "ERR", "WRN", "DBG", "INFO" };
	char text[LOG_BYTES];
	va_list args;

	(void)line;
	if (log_out == NULL)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	fprintf(log_out, "nvgpu: %s %33s:%-4d [%s]  %s\n", g == NULL ? "" : "17000000.gpu", func_name, line, levels[type], text);
}

void nvgpu_log_dbg_impl(struct gk20a *g, u64 log_mask, const char *func_name, int line, const char *fmt, ...)
{
	(void)g;
	(void)log_mask;
	(void)func_name;
	(void)line;
	(void)fmt;
}

void nvgpu_dbg_dump_impl(struct gk20a *g, const char *str)
{
	(void)g;
	if (log_out != NULL)
		fprintf(log_out, "__ga10b__ %s\n", str);
}
