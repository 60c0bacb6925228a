/*
 * oracle sequences FIRST COUNT    address-space calls, seeds FIRST to FIRST + COUNT - 1
 * oracle images FIRST COUNT       page tables with all that they can hold
 */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	u64 first, count;

	if (argc != 4)
		goto usage;
	first = strtoull(argv[2], NULL, 0);
	count = strtoull(argv[3], NULL, 0);
	if (strcmp(argv[1], "sequences") == 0) {
		for (u64 seed = first; seed < first + count; seed++)
			sequences_write(seed, stdout);
	} else if (strcmp(argv[1], "faults") == 0) {
		for (u64 seed = first; seed < first + count; seed++)
			faults_write(seed, stdout);
	} else if (strcmp(argv[1], "images") == 0) {
		for (u64 seed = first; seed < first + count; seed++)
			images_write(seed, stdout);
	} else
		goto usage;
	return ferror(stdout) ? 3 : 0;

usage:
	fprintf(stderr, "usage: oracle sequences|images FIRST COUNT\n");
	return 2;
}
