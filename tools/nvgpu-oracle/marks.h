/* One request of the client, as it is recorded. The including file has u8, u32, u64 and bool. */
#ifndef ORACLE_MARKS_H
#define ORACLE_MARKS_H

#include <stdio.h>

/* What a descriptor in an argument may be: files and buffers by number, or none. */
#define HANDLE_NONE (-1)
#define HANDLE_BUFFER(number) (-2 - (int)(number))

/* A new sequence, recorded to `out`. */
void marks_reset(FILE *out);
/* Begins a call; the argument is what comes back, `bytes` of zeros. */
void *call_begin(int file, const char *name, u32 request);
/* The field at `at` is the descriptor of what `handle` names. */
void call_descriptor(void *at, int handle);
/* The field at `at` is the address of `bytes` of memory; 8 bytes wide. */
void *call_memory(void *at, u32 bytes);
/* The field at `at` is the address of an array of descriptors. */
void call_descriptors(void *at, const int *handles, u32 count);
/* The field at `at` is an address that is no memory. */
void call_no_memory(void *at);
/* The field at `at` is an address `offset` bytes into a mapping. */
void call_mapped(void *at, int mapping, u64 address, u64 offset);
/* The field at `at` will name what the call makes. */
void call_makes(void *at);
/* `bytes` of the answer, or of the memory, are not compared: times and addresses that depend on sizes nobody knows. */
void call_ignore(void *at, u32 bytes);
/* Makes the call: 0, an errno, or -1 when it returned how much could not be copied or did not return. */
int call_end(void);
/* What the call made; HANDLE_NONE when it failed. */
int call_made(void);
/* The answer, as in call_begin. */
void *call_answer(void);

#define CALL(type, file, name) ((type *)call_begin((file), #name, (u32)(name)))

/* What each program answers: the number that stands for a file or buffer, which one a new number is, and the call itself,
   which is recorded and false when the machine stops. */
int call_value(int handle);
int call_name(int value);
bool call_perform(int file, u32 request, void *argument, long *result);

#endif
