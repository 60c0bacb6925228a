/* What the client does, as it is recorded. The format is described at the head of requests.c. */
#ifndef ORACLE_CALLS_H
#define ORACLE_CALLS_H

#include <nvgpu/types.h>
#include "marks.h"

/* A new sequence, recorded to `out`. */
void calls_reset(FILE *out);
/* Whether the machine stopped: the sequence ends there. */
bool calls_stopped(void);
/* Opens a node by name, "ctrl" or "dbg": the number of the file. */
int calls_open(const char *node);
void calls_close(int file);
void calls_map_doorbell(int file, u64 bytes, u64 page);
void calls_unmap_doorbell(int file);
int calls_new_buffer(u64 bytes, bool read_only);
void calls_write_word(int buffer, u32 offset, u32 word);
void calls_read_notifier(int buffer, u32 offset);

#endif
