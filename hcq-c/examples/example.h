/* Shared by the examples: errors that end main, and the kernels of ../../hcq/examples/kernels. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <hcq.h>
#include <stdio.h>
#include <stdlib.h>

/* The folder of the cubins; the compiler's -DKERNELS names another one. */
#ifndef KERNELS
#define KERNELS "hcq/examples/kernels"
#endif

/* Goes to the label `end` if a call fails, and prints why. */
#define TRY(call)                                                                    \
    do {                                                                             \
        hcq_status tried = (call);                                                   \
        if (tried != HCQ_OK) {                                                       \
            fprintf(stderr, "%s: %s\n%s\n", #call, hcq_status_name(tried), hcq_last_error()); \
            goto end;                                                                \
        }                                                                            \
    } while (0)

/* Machine code for several SM versions: the device takes what runs on it. */
static const char *const EXAMPLES[] = {
    KERNELS "/examples.sm_80.cubin",
    KERNELS "/examples.sm_87.cubin",
    KERNELS "/examples.sm_90.cubin",
};

#define EXAMPLES_COUNT (sizeof EXAMPLES / sizeof EXAMPLES[0])

/* Every wait has a deadline. */
#define SECONDS ((int64_t)1000 * 1000 * 1000)

#endif
