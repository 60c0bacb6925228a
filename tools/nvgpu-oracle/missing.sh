#!/bin/sh
# missing.sh OUT.c OBJECT...: stubs for every symbol that the objects use and neither they nor the C library
# define.
set -eu
out=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -P "$@" 2>/dev/null | awk '$2 != "U" && NF >= 2 { print $1 }' | sort -u >"$work/defined"
nm -P "$@" 2>/dev/null | awk '$2 == "U" { print $1 }' | sort -u >"$work/used"
# The linker knows what the C library has: it names what is left.
comm -23 "$work/used" "$work/defined" >"$work/left"
{
    echo 'int main(void);'
    while read -r name; do echo "extern char $name[]; char *use_$name = $name;"; done <"$work/left"
    echo 'int main(void) { return 0; }'
} >"$work/probe.c"
cc -w -fno-builtin -o "$work/probe" "$work/probe.c" -lpthread 2>&1 |
    sed -n "s/.*undefined reference to [\`']\([A-Za-z0-9_]*\)'.*/\1/p" | sort -u >"$work/missing" || true
{
    cat <<'EOF'
#include <stdio.h>
#include <stdlib.h>
static void stop(const char *name)
{
	fprintf(stderr, "the driver called %s, which the oracle does not have\n", name);
	exit(4);
}
EOF
    while read -r name; do echo "void $name(void) { stop(\"$name\"); }"; done <"$work/missing"
} >"$out"
