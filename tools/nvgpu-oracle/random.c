#include "random.h"

static u64 state;

/* Neighbouring seeds must not give the same stream, shifted by one: the state is two outputs of the generator itself. */
void random_seed(u64 seed)
{
	state = seed;
	state = random_u64() ^ (random_u64() << 1);
}

/* splitmix64 */
u64 random_u64(void)
{
	u64 z = (state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

u64 random_below(u64 below)
{
	return below == 0 ? 0 : random_u64() % below;
}

int random_chance(u32 percent)
{
	return random_below(100) < percent;
}
