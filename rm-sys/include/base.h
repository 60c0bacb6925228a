/* SPDX-License-Identifier: MIT */
/*
 * Integer types, and how the driver numbers its escapes: number in bits 0-7, 'F' in 8-15, size of the argument in
 * 16-29, read and write in 30-31. Self-contained, so that no system header is needed.
 */
#pragma once

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef signed short __s16;
typedef unsigned int __u32;
typedef signed int __s32;
typedef unsigned long long __u64;
typedef signed long long __s64;

#define RM_ESCAPE(nr, arg) ((3U << 30) | ((unsigned int)sizeof(arg) << 16) | ('F' << 8) | (nr))
