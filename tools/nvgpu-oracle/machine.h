/* A GPU that serves requests. */
#ifndef ORACLE_MACHINE_H
#define ORACLE_MACHINE_H

struct gk20a;

/* A new machine, just booted. */
struct gk20a *machine_new(void);
/* The machine of the last call. */
struct gk20a *machine_gpu(void);
/* The character device of the nodes. */
struct cdev;
struct cdev *machine_node(void);
/* Syncpoints are free again. */
void services_reset(void);

#endif
