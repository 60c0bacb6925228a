#!/bin/sh
# Parses and evaluates flake.nix with Nix, without the network: nixpkgs is a stand-in (nixpkgs.nix) that knows
# the names the flake may use, and hands back what it was given. Then compares the development shell with the
# commands in the documentation's shell blocks (commands.py).
#
# Needs `nix-instantiate` (Debian: nix-bin) and Python.
set -eu
cd "$(dirname "$0")/../.."
NIX_STATE_DIR=$(mktemp -d)
trap 'rm -rf "$NIX_STATE_DIR"' EXIT
export NIX_STATE_DIR NIX_STORE_DIR="$NIX_STATE_DIR/store"
nix-instantiate --parse flake.nix >/dev/null
nix-instantiate --eval --strict --json tools/flake/evaluate.nix >"$NIX_STATE_DIR/outputs.json"
python3 tools/flake/commands.py <"$NIX_STATE_DIR/outputs.json"
