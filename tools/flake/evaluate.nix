# What flake.nix makes of the stand-in of nixpkgs, for both systems.
let
  flake = import ../../flake.nix;
  self = ../..;
  outputs = flake.outputs { inherit self; nixpkgs = import ./nixpkgs.nix; };
  describe = system: {
    package = builtins.removeAttrs outputs.packages.${system}.default [ "src" "cargoLock" ];
    lockFile = builtins.pathExists outputs.packages.${system}.default.cargoLock.lockFile;
    shell = outputs.devShells.${system}.default;
  };
in {
  aarch64-linux = describe "aarch64-linux";
  x86_64-linux = describe "x86_64-linux";
}
