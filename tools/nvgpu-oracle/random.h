/* A small generator with a seed: the same records on every machine. The including file has u32 and u64. */
#ifndef ORACLE_RANDOM_H
#define ORACLE_RANDOM_H

void random_seed(u64 seed);
u64 random_u64(void);
/* Uniform in [0, below). */
u64 random_below(u64 below);
/* True in `percent` of the cases. */
int random_chance(u32 percent);

#endif
