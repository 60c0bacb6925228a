#!/bin/sh
# Prints the flags of rustc that keep this machine's folders out of what it builds. The current directory is
# the repository's root.
echo "--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
