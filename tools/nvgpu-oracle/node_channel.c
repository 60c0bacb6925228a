/* The driver's node of channel files. */
#include "os_linux_services.h"
#include "os/linux/ioctl_channel.c"
