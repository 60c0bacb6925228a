/* The client that makes random requests: what it holds, and who makes which. */
#ifndef ORACLE_REQUESTS_H
#define ORACLE_REQUESTS_H

#include "calls.h"
#include "oracle.h"

#include <linux/kernel-services.h>
#include <nvgpu/bug.h>
#include <uapi/linux/nvgpu.h>

#define MOST_FILES 24

struct held {
	int files[MOST_FILES];
	u32 count;
};

struct client_channel {
	int file;
	/* What it was bound to, as far as the client knows. */
	int space, group;
	bool ring, class, closed;
};

struct client {
	struct held ctrl, spaces, groups, sessions, events;
	struct client_channel channels[MOST_FILES];
	u32 channel_count;
	/* Buffers of 64 KiB; the last one is one page. */
	int buffers[6];
	u32 buffer_count;
};

extern struct client client;

/* One of the files held, seldom another file or none. */
int some(const struct held *held);
/* The same without exceptions; HANDLE_NONE when there is none. */
int one(const struct held *held);
void hold(struct held *held, int file);
/* True in one of four cases: the call is to be wrong somehow. */
bool wrong(void);
struct client_channel *some_channel(void);
/* A descriptor for an argument: mostly this one. */
int mostly(int handle);
int some_buffer(void);
u32 some_u32(const u32 *values, u32 count);
#define ONE_OF(...) some_u32((const u32[]){ __VA_ARGS__ }, sizeof((u32[]){ __VA_ARGS__ }) / sizeof(u32))

void request_of_channel(void);
void request_of_group(void);
void request_of_control(void);
void request_of_session(void);
void open_channel(void);
void open_group(void);
void open_space(void);
/* Binds a channel to an address space and a group, with all that comes before a ring and a context. */
void set_up_channel(struct client_channel *ch);

#endif
