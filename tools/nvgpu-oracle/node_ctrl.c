/* The driver's node of ctrl files. */
#include "os_linux_services.h"
#include "os/linux/ioctl_ctrl.c"
