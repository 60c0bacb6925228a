/* Requests of channel files. */
#include "requests.h"

/* A control node's request. */
void open_channel(void)
{
	struct nvgpu_gpu_open_channel_args *a;
	struct client_channel *from = some_channel();
	int file;

	if (client.channel_count == MOST_FILES)
		return;
	if (from != NULL && random_chance(20)) {
		struct nvgpu_channel_open_args *b = CALL(struct nvgpu_channel_open_args, from->file, NVGPU_IOCTL_CHANNEL_OPEN);

		b->in.runlist_id = random_chance(80) ? -1 : (int)ONE_OF(0, 1, 2, 3, 7);
		call_makes(&b->out.channel_fd);
	} else {
		a = CALL(struct nvgpu_gpu_open_channel_args, one(&client.ctrl), NVGPU_GPU_IOCTL_OPEN_CHANNEL);
		a->in.runlist_id = random_chance(80) ? -1 : (int)ONE_OF(0, 1, 2, 3, 100);
		call_makes(&a->out.channel_fd);
	}
	if (call_end() != 0)
		return;
	file = call_made();
	client.channels[client.channel_count++] = (struct client_channel){ .file = file, .space = HANDLE_NONE, .group = HANDLE_NONE };
}

static void bind_space(struct client_channel *ch)
{
	int space = one(&client.spaces);
	struct nvgpu_as_bind_channel_args *a;

	if (space == HANDLE_NONE)
		return;
	a = CALL(struct nvgpu_as_bind_channel_args, space, NVGPU_AS_IOCTL_BIND_CHANNEL);
	call_descriptor(&a->channel_fd, mostly(ch->file));
	if (call_end() == 0)
		ch->space = space;
}

static void bind_group(struct client_channel *ch)
{
	int group = one(&client.groups);
	struct nvgpu_tsg_bind_channel_ex_args *a;

	if (group == HANDLE_NONE)
		return;
	if (random_chance(3)) {
		int *b = CALL(int, group, NVGPU_TSG_IOCTL_BIND_CHANNEL);

		call_descriptor(b, mostly(ch->file));
	} else {
		a = CALL(struct nvgpu_tsg_bind_channel_ex_args, group, NVGPU_TSG_IOCTL_BIND_CHANNEL_EX);
		call_descriptor(&a->channel_fd, mostly(ch->file));
		a->subcontext_id = random_chance(50) ? 0 : wrong() ? ONE_OF(2, 5, 63, 64, 0xffffffff) : 1;
	}
	if (call_end() == 0)
		ch->group = group;
}

static void create_subcontext(struct client_channel *ch)
{
	int group = one(&client.groups);
	struct nvgpu_tsg_create_subcontext_args *a;

	if (group == HANDLE_NONE)
		return;
	a = CALL(struct nvgpu_tsg_create_subcontext_args, group, NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT);
	a->type = random_chance(85) ? NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC : ONE_OF(0, 2, 0xffffffff);
	call_descriptor(&a->as_fd, mostly(ch->space == HANDLE_NONE ? one(&client.spaces) : ch->space));
	call_end();
}

static void watchdog(struct client_channel *ch, bool usual)
{
	struct nvgpu_channel_wdt_args *a = CALL(struct nvgpu_channel_wdt_args, ch->file, NVGPU_IOCTL_CHANNEL_WDT);

	a->wdt_status = usual ? NVGPU_IOCTL_CHANNEL_DISABLE_WDT : wrong() ? (u32)random_u64() : ONE_OF(1, 2, 3, 1 | 4, 2 | 4 | 8, 0, 4);
	a->timeout_ms = random_chance(50) ? 0 : (u32)random_below(10000);
	call_end();
}

static void setup_bind(struct client_channel *ch, bool usual)
{
	struct nvgpu_channel_setup_bind_args *a = CALL(struct nvgpu_channel_setup_bind_args, ch->file, NVGPU_IOCTL_CHANNEL_SETUP_BIND);
	bool usermode = usual || random_chance(92);
	int ring = client.buffers[random_below(5)], userd = client.buffers[5];

	a->num_gpfifo_entries = usual || !wrong() ? 1U << (1 + random_below(10)) : ONE_OF(0, 1, 3, 0x2000, 0x4000, 1 << 28, 1 << 29, 0x80000000, 0xffffffff);
	a->flags = usermode ? NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT | NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC : 0;
	if (!usual && wrong())
		a->flags ^= 1U << random_below(6);
	/* Rings of the kernel's are not modelled but for small ones that nobody uses. */
	if ((a->flags & NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT) == 0 && a->num_gpfifo_entries <= 1 << 28)
		a->num_gpfifo_entries %= 2048;
	if (!usual && random_chance(4))
		a->gpfifo_dmabuf_offset = 4096;
	if (!usual && random_chance(4))
		a->userd_dmabuf_offset = 4096;
	if (!usual && random_chance(4))
		a->gpfifo_dmabuf_fd = 0;
	else
		call_descriptor(&a->gpfifo_dmabuf_fd, usual ? ring : mostly(ring));
	if (!usual && random_chance(4))
		a->userd_dmabuf_fd = 0;
	else
		/* The GPU writes it, so it is no buffer that the client looks at. */
		call_descriptor(&a->userd_dmabuf_fd, usual || !random_chance(6) ? userd : random_chance(50) ? HANDLE_NONE : one(&client.ctrl));
	/* Where the driver maps things for the kernel is compared elsewhere. */
	call_ignore(&a->gpfifo_gpu_va, 24);
	if (call_end() == 0)
		ch->ring = true;
}

static void alloc_obj_ctx(struct client_channel *ch, bool usual)
{
	struct nvgpu_alloc_obj_ctx_args *a = CALL(struct nvgpu_alloc_obj_ctx_args, ch->file, NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX);

	a->class_num = usual || !wrong() ? ONE_OF(0xc7c0, 0xc7c0, 0xc7b5, 0xc797) : ONE_OF(0, 0xc3c0, 0xc5c0, 0x902d, 0xa140, 0xc76f, 0xc6c0, 0xc6b5, 0xc3b5, 0xc5b5, 0xc597, 0xc397, 0xb197, 0xc8c0, 0xffffffff);
	a->flags = random_chance(60) ? 0 : ONE_OF(NVGPU_ALLOC_OBJ_FLAGS_CILP, NVGPU_ALLOC_OBJ_FLAGS_GFXP, NVGPU_ALLOC_OBJ_FLAGS_CILP | NVGPU_ALLOC_OBJ_FLAGS_GFXP, 1, 0xffffffff);
	if (call_end() == 0)
		ch->class = true;
}

static void preemption_mode(struct client_channel *ch)
{
	struct nvgpu_preemption_mode_args *a = CALL(struct nvgpu_preemption_mode_args, ch->file, NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE);

	a->graphics_preempt_mode = random_chance(60) ? 0 : wrong() ? ONE_OF(3, 4, 8, 0x80000000) : ONE_OF(1, 2);
	a->compute_preempt_mode = random_chance(30) ? 0 : wrong() ? ONE_OF(3, 5, 8, 16, 0xffffffff) : ONE_OF(1, 2, 4);
	call_end();
}

static void error_notifier(struct client_channel *ch)
{
	struct nvgpu_set_error_notifier *a = CALL(struct nvgpu_set_error_notifier, ch->file, NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER);
	int buffer = client.buffers[random_below(5)];

	a->offset = random_chance(50) ? 0 : wrong() ? ONE_OF(0x8002, 0x9001, 0xfff0, 0xfff1, 0xfff8, 0x10000, 0xffffffff) : 16 * random_below(16);
	if (random_chance(3))
		a->offset = ~0ULL - random_below(32);
	a->size = random_chance(50) ? 16 : random_below(64);
	if (random_chance(5))
		a->mem = 0;
	else
		call_descriptor(&a->mem, mostly(buffer));
	call_end();
}

static void wait(struct client_channel *ch)
{
	int buffer = client.buffers[random_below(5)];
	u32 offset = random_chance(80) ? 16 * (u32)random_below(16) : ONE_OF(2, 0xfffc, 0xfffd, 0xfffe, 0x10000, 0xfff0, 0xfff4, 0xffffffff, 0xfffffffc);
	struct nvgpu_wait_args *a;

	/* A notification that is pending. */
	if (offset < 0xff00 && offset % 16 == 0 && random_chance(25))
		calls_write_word(buffer, offset + 12, 0x80000000);
	a = CALL(struct nvgpu_wait_args, ch->file, NVGPU_IOCTL_CHANNEL_WAIT);
	a->type = random_chance(90) ? (u32)random_below(2) : ONE_OF(2, 0xffffffff);
	/* Not where notifications have the time. */
	if (a->type == NVGPU_WAIT_TYPE_SEMAPHORE && offset < 0xff00 && offset % 16 == 0)
		offset += 8;
	/* 0 waits for ever. */
	a->timeout = 1 + (u32)random_below(2);
	call_descriptor(&a->condition.semaphore.dmabuf_fd, mostly(buffer));
	a->condition.semaphore.offset = offset;
	a->condition.semaphore.payload = random_chance(75) ? 0 : (u32)random_below(3);
	call_end();
	offset &= ~15U;
	if (offset < 0xff00)
		calls_read_notifier(buffer, offset);
}

static void set_timeout(struct client_channel *ch)
{
	if (random_chance(50)) {
		struct nvgpu_set_timeout_args *a = CALL(struct nvgpu_set_timeout_args, ch->file, NVGPU_IOCTL_CHANNEL_SET_TIMEOUT);

		a->timeout = (u32)random_u64();
	} else {
		struct nvgpu_set_timeout_ex_args *a = CALL(struct nvgpu_set_timeout_ex_args, ch->file, NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX);

		a->timeout = (u32)random_u64();
		a->flags = (u32)random_u64();
	}
	call_end();
}

static void is_timed_out(struct client_channel *ch)
{
	CALL(struct nvgpu_get_param_args, ch->file, NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT);
	call_end();
}

static void user_syncpoint(struct client_channel *ch)
{
	struct nvgpu_get_user_syncpoint_args *a;

	/* Without an address space the driver follows a null pointer. */
	if (ch->space == HANDLE_NONE)
		return;
	a = CALL(struct nvgpu_get_user_syncpoint_args, ch->file, NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT);
	call_ignore(&a->gpu_va, 8);
	/* host1x gives the lowest that is free, and others take some; the value is what the last owner left. */
	call_ignore(&a->syncpoint_id, 8);
	call_end();
}

static void without_argument(struct client_channel *ch)
{
	switch (random_below(9)) {
	case 0:
	case 1: call_begin(ch->file, "NVGPU_IOCTL_CHANNEL_ENABLE", NVGPU_IOCTL_CHANNEL_ENABLE); break;
	case 2:
	case 3: call_begin(ch->file, "NVGPU_IOCTL_CHANNEL_DISABLE", NVGPU_IOCTL_CHANNEL_DISABLE); break;
	case 4:
	case 5: call_begin(ch->file, "NVGPU_IOCTL_CHANNEL_PREEMPT", NVGPU_IOCTL_CHANNEL_PREEMPT); break;
	case 6:
	case 7: call_begin(ch->file, "NVGPU_IOCTL_CHANNEL_FORCE_RESET", NVGPU_IOCTL_CHANNEL_FORCE_RESET); break;
	default:
		CALL(struct nvgpu_reschedule_runlist_args, ch->file, NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST)->flags = (u32)random_below(4);
	}
	call_end();
}

static void older(struct client_channel *ch)
{
	switch (random_below(4)) {
	case 0: {
		struct nvgpu_alloc_gpfifo_ex_args *a = CALL(struct nvgpu_alloc_gpfifo_ex_args, ch->file, NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX);

		/* Large enough to be refused, or without a group: rings of the kernel's are not modelled. */
		a->num_entries = ONE_OF(0, 1, 2, 3, 6, 1 << 29, 0x80000000);
		break;
	}
	case 1: CALL(struct nvgpu_boosted_ctx_args, ch->file, NVGPU_IOCTL_CHANNEL_SET_BOOSTED_CTX)->boost = (u32)random_below(3); break;
	case 2: CALL(struct nvgpu_set_nvmap_fd_args, ch->file, NVGPU_IOCTL_CHANNEL_SET_NVMAP_FD)->fd = (u32)random_below(3); break;
	default:
		/* A number that is none of the node's requests. */
		call_begin(ch->file, "unknown", ONE_OF(_IO('H', 0), _IO('H', 99), _IO('H', 255), _IO('G', 1), _IOW('H', 60, u32), _IOWR('H', 108, u64)));
	}
	call_end();
}

void set_up_channel(struct client_channel *ch)
{
	bind_space(ch);
	if (random_chance(50) && !calls_stopped())
		create_subcontext(ch);
	if (!calls_stopped())
		bind_group(ch);
	if (random_chance(60) && !calls_stopped())
		error_notifier(ch);
	if (!calls_stopped())
		watchdog(ch, random_chance(90));
	if (!calls_stopped() && ch->group != HANDLE_NONE)
		setup_bind(ch, random_chance(75));
	if (!calls_stopped() && random_chance(85) && ch->group != HANDLE_NONE)
		alloc_obj_ctx(ch, true);
}

void request_of_channel(void)
{
	struct client_channel *ch = some_channel();
	u64 dice = random_below(100);

	if (dice < 6)
		bind_space(ch);
	else if (dice < 12)
		bind_group(ch);
	else if (dice < 16)
		create_subcontext(ch);
	else if (dice < 22)
		watchdog(ch, false);
	else if (dice < 30)
		setup_bind(ch, false);
	else if (dice < 40)
		alloc_obj_ctx(ch, false);
	else if (dice < 52)
		preemption_mode(ch);
	else if (dice < 58)
		error_notifier(ch);
	else if (dice < 65)
		wait(ch);
	else if (dice < 70)
		set_timeout(ch);
	else if (dice < 80)
		is_timed_out(ch);
	else if (dice < 83)
		user_syncpoint(ch);
	else if (dice < 90)
		without_argument(ch);
	else if (dice < 94)
		older(ch);
	else if (dice < 97) {
		calls_write_word(client.buffers[random_below(5)], 16 * (u32)random_below(16) + ONE_OF(0, 8, 12), random_chance(30) ? 0 : random_chance(50) ? 0xffff0000 : (u32)random_below(3));
	} else
		calls_read_notifier(client.buffers[random_below(5)], 16 * (u32)random_below(16));
}
