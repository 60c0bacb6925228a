/* SPDX-License-Identifier: MIT */
/* Everything, for the generator. */
#include "nvgpu-ctrl.h"
#include "nvgpu-as.h"
#include "nvgpu.h"
#include "nvgpu-event.h"
#include "nvmap.h"
#include "nvmap-heaps.h"
