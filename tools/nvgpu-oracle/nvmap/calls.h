/* What the client of nvmap does, as it is recorded. The format is described at the head of client.c. */
#ifndef ORACLE_NVMAP_CALLS_H
#define ORACLE_NVMAP_CALLS_H

#include "kernel.h"
#include "marks.h"

/* A new sequence, recorded to `out`. */
void calls_reset(FILE *out);
/* Whether the machine stopped: the sequence ends there. */
bool calls_stopped(void);
/* Opens the node: the number of the file. */
int calls_open(void);
void calls_close(int file);
/* Maps a file: the number of the mapping, or HANDLE_NONE. */
int calls_map(int file, u64 bytes, u64 page, bool writes);
void calls_unmap(int mapping);
/* The client writes, or reads, a word of a mapping. */
void calls_touch(int mapping, u32 offset, const u32 *word);
/* Address of a mapping. */
u64 calls_address(int mapping);

#endif
