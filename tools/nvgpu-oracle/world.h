/* The GPU and its users at the time of a fault. */
#ifndef ORACLE_WORLD_H
#define ORACLE_WORLD_H

#include <nvgpu/types.h>

/* SMs of the modelled chip: 2 GPCs of 4 TPCs of 2 SMs. */
#define WORLD_SMS 16

struct world {
	struct gk20a *g;
	struct nvgpu_channel *channel;
	struct nvgpu_tsg *tsg;
	/* Physical address of the channel's instance block. */
	u64 instance;
};

/* A new machine with one channel in one group, of a process with that name. */
struct world *world_new(u32 channel, u32 group, const char *comm);

#endif
