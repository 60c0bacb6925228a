/* The driver's node of tsg files. */
#include "os_linux_services.h"
#include "os/linux/ioctl_tsg.c"
