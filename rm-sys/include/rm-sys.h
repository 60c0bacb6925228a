/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Everything, for the generator. */
#include "nvos.h"
#include "controls.h"
#include "classes.h"
#include "uvm.h"
#include "channel.h"
#include "status.h"
#include "variants.h"
