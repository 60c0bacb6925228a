/* SPDX-License-Identifier: MIT */
/* Everything, for the generator. */
#include "nvos.h"
#include "controls.h"
#include "classes.h"
#include "uvm.h"
#include "channel.h"
#include "status.h"
#include "variants.h"
