/* SPDX-License-Identifier: MIT */
/*
 * Integer types, and how Linux builds a request number (asm-generic/ioctl.h): number in bits 0-7, magic in 8-15,
 * size of the argument in 16-29, direction in 30-31. Self-contained, so that no system header is needed.
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

#define ABI_IOC(dir, magic, nr, size) (((dir) << 30) | ((unsigned int)(size) << 16) | ((magic) << 8) | (nr))
#define _IO(magic, nr) ABI_IOC(0U, magic, nr, 0)
#define _IOW(magic, nr, arg) ABI_IOC(1U, magic, nr, sizeof(arg))
#define _IOR(magic, nr, arg) ABI_IOC(2U, magic, nr, sizeof(arg))
#define _IOWR(magic, nr, arg) ABI_IOC(3U, magic, nr, sizeof(arg))
