/* The driver's channels, as far as they concern Linux. */
#include "os_linux_services.h"
#include "os/linux/linux-channel.c"
