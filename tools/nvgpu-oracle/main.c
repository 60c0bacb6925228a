/*
 * oracle sequences FIRST COUNT    calls to address spaces
 * oracle images FIRST COUNT       page tables with all that they can hold
 * oracle faults FIRST COUNT       what is printed about faults
 *
 * One record for each seed from FIRST on, to the standard output.
 */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*write)(u64 seed, FILE *out);
	} kinds[] = { { "sequences", sequences_write }, { "images", images_write }, { "faults", faults_write } };

	for (u32 i = 0; argc == 4 && i < 3; i++) {
		u64 first, count;

		if (strcmp(argv[1], kinds[i].name) != 0)
			continue;
		first = strtoull(argv[2], NULL, 0);
		count = strtoull(argv[3], NULL, 0);
		for (u64 seed = first; seed < first + count; seed++)
			kinds[i].write(seed, stdout);
		return fflush(stdout) != 0 || ferror(stdout) ? 3 : 0;
	}
	fprintf(stderr, "usage: oracle sequences|images|faults FIRST COUNT\n");
	return 2;
}
