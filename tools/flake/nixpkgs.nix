# A stand-in of nixpkgs: packages are their names, and builders return their arguments. An attribute that is
# not here fails the evaluation, so a misspelt name does. All of them exist in nixpkgs under these names.
let
  names = [
    "cargo" "rustc" "rustfmt" "clippy" "cargo-deny" "python3" "git" "curl" "gawk" "gnugrep" "coreutils"
    "installShellFiles" "jq" "gcc" "pkg-config"
  ];
  packages = builtins.listToAttrs (map (name: { inherit name; value = name; }) names) // {
    libclang.lib = "libclang";
    lib.licenses.mit = "mit";
    rustPlatform.buildRustPackage = arguments: arguments;
    mkShell = arguments: arguments;
  };
in {
  lib.genAttrs = systems: f:
    builtins.listToAttrs (map (name: { inherit name; value = f name; }) systems);
  legacyPackages = { aarch64-linux = packages; x86_64-linux = packages; };
}
