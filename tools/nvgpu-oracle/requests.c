/*
 * Random sequences of requests of control, address-space, group, channel and debugger files, with what the driver answers.
 *
 * One line for each thing that the client does; after `=` the answer, or `!` and the errno in decimal, `+` and how many bytes
 * were not copied, `!BUG` where the driver runs into BUG(), follows a null pointer or waits for ever, which ends the sequence. Numbers are
 * hexadecimal; files (f) and buffers (b) are counted from 0 on in the order of their making, `x` is a descriptor of none.
 *
 * S <seed>                              a new machine
 * O <node> = <file>                     opens a node: ctrl or dbg
 * C <file> = 0                          closes a file
 * D <file> <bytes> <page> = 0           mmap() of a control node
 * U <file> = 0                          munmap() of it
 * B <bytes> <read only>                 a buffer
 * W <buffer> <offset> <word>            the client writes a word
 * Q <buffer> <offset> = <word> <word>   the client reads an error notifier, without its time
 * I <file> <name> <request> <argument> <marks> = <answer> <new file> <memory>     ioctl()
 *
 * Arguments, answers and memory are bytes, without the zeros at their end, `-` for none. Marks name fields of the argument by
 * offset: d<at>=<file> a descriptor; p<at>=<bytes> the address of a memory; a<at>=<file>,... the address of an array of
 * descriptors; z<at>= the address of no memory; n<at>= a descriptor that the call makes; ~<at>=<bytes> not compared.
 * i<memory>=<bytes> is what a memory holds before the call, j<memory>=<at>+<bytes> a part of it that is not compared,
 * m<memory>=<bytes> what it holds afterwards.
 */
#include "requests.h"
#include "machine.h"

#include <signal.h>
#include <stdlib.h>

struct client client;

bool wrong(void) { return random_chance(25); }
u32 some_u32(const u32 *values, u32 count) { return values[random_below(count)]; }
int one(const struct held *held) { return held->count == 0 ? HANDLE_NONE : held->files[random_below(held->count)]; }

void hold(struct held *held, int file)
{
	if (file != HANDLE_NONE && held->count < MOST_FILES)
		held->files[held->count++] = file;
}

struct client_channel *some_channel(void)
{
	return client.channel_count == 0 ? NULL : &client.channels[random_below(client.channel_count)];
}

int some_buffer(void) { return client.buffers[random_below(client.buffer_count)]; }

int mostly(int handle)
{
	struct client_channel *ch = some_channel();

	if (!random_chance(8))
		return handle;
	switch (random_below(6)) {
	case 0: return HANDLE_NONE;
	case 1: return one(&client.ctrl);
	case 2: return one(&client.spaces);
	case 3: return one(&client.groups);
	case 4: return ch == NULL ? HANDLE_NONE : ch->file;
	default: return some_buffer();
	}
}

int some(const struct held *held) { return mostly(one(held)); }

static void close_file(int file)
{
	calls_close(file);
	for (u32 i = 0; i < client.channel_count; i++) {
		if (client.channels[i].space == file)
			client.channels[i].space = HANDLE_NONE;
		if (client.channels[i].group == file)
			client.channels[i].group = HANDLE_NONE;
	}
}

static void close_one(struct held *held, u32 least)
{
	u32 at = (u32)random_below(held->count);

	if (held->count <= least)
		return;
	close_file(held->files[at]);
	held->files[at] = held->files[--held->count];
}

/* Files that others still use may close: the driver keeps what is used. */
static void close_something(void)
{
	u32 at;

	switch (random_below(6)) {
	case 0: close_one(&client.spaces, 1); break;
	case 1: close_one(&client.groups, 1); break;
	case 2: close_one(&client.sessions, 0); break;
	case 3: close_one(&client.events, 0); break;
	default:
		if (client.channel_count > 1) {
			at = (u32)random_below(client.channel_count);
			calls_close(client.channels[at].file);
			client.channels[at] = client.channels[--client.channel_count];
		}
	}
}

static void doorbell(void)
{
	int file = one(&client.ctrl);

	if (random_chance(25))
		calls_unmap_doorbell(file);
	else
		calls_map_doorbell(file, random_chance(20) ? ONE_OF(0x1000, 0x20000, 0x11000) : 0x10000, random_chance(10) ? 1 : 0);
}

/* What a client of this project does before its first submission; what fails is tried no further. */
static void usual_start(void)
{
	open_space();
	open_group();
	for (u64 i = 1 + random_below(3); i > 0 && !calls_stopped(); i--) {
		open_channel();
		if (client.channel_count > 0 && random_chance(85) && !calls_stopped())
			set_up_channel(&client.channels[client.channel_count - 1]);
	}
}

static void one_request(void)
{
	u64 dice = random_below(100);

	if (client.sessions.count > 0 && random_chance(12))
		request_of_session();
	else if (dice < 45 && client.channel_count > 0)
		request_of_channel();
	else if (dice < 68 && client.groups.count > 0)
		request_of_group();
	else if (dice < 82)
		request_of_control();
	else if (dice < 86 && client.channel_count < 12)
		open_channel();
	else if (dice < 88 && client.channel_count > 0)
		set_up_channel(some_channel());
	else if (dice < 89 && client.spaces.count < 6)
		open_space();
	else if (dice < 90 && client.groups.count < 6)
		open_group();
	else if (dice < 92)
		close_something();
	else if (dice < 94)
		doorbell();
	else if (dice < 95 && client.sessions.count < 3)
		hold(&client.sessions, calls_open("dbg"));
}

static void sequence(u64 seed, FILE *out)
{
	u32 calls;

	random_seed(seed);
	machine_new();
	calls_reset(out);
	memset(&client, 0, sizeof(client));
	fprintf(out, "S %llx\n", seed);
	hold(&client.ctrl, calls_open("ctrl"));
	if (random_chance(30))
		hold(&client.ctrl, calls_open("ctrl"));
	if (random_chance(50))
		hold(&client.sessions, calls_open("dbg"));
	while (client.buffer_count < 5)
		client.buffers[client.buffer_count++] = calls_new_buffer(0x10000, false);
	client.buffers[client.buffer_count++] = calls_new_buffer(0x1000, false);
	usual_start();
	calls = random_chance(90) ? 30 + (u32)random_below(90) : 150 + (u32)random_below(150);
	for (u32 i = 0; i < calls && !calls_stopped(); i++)
		one_request();
}

/* The driver follows a pointer that leads nowhere: an oops of the kernel. */
static void stray(int signal)
{
	(void)signal;
	nvgpu_posix_bug("a null pointer", 0);
}

int main(int argc, char **argv)
{
	u64 first, count;

	if (argc != 3) {
		fprintf(stderr, "usage: requests FIRST COUNT\n");
		return 2;
	}
	sigaction(SIGSEGV, &(struct sigaction){ .sa_handler = stray, .sa_flags = SA_NODEFER }, NULL);
	/* The driver's log, to see why it refuses. */
	if (getenv("ORACLE_LOG") != NULL) {
		setvbuf(stdout, NULL, _IOLBF, 0);
		os_log_to(stderr);
	}
	first = strtoull(argv[1], NULL, 0);
	count = strtoull(argv[2], NULL, 0);
	for (u64 seed = first; seed < first + count; seed++)
		sequence(seed, stdout);
	return fflush(stdout) != 0 || ferror(stdout) ? 3 : 0;
}
