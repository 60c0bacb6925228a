/* The driver's node of dbg files. */
#include "os_linux_services.h"
#include "os/linux/ioctl_dbg.c"
