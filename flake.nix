{
  description = "Low-level GPU driver toolkit and diagnostics for Tegra ga10b, without the CUDA runtime";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "aarch64-linux" "x86_64-linux" ];
      forAll = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
    in {
      packages = forAll (pkgs: rec {
        default = toolkit;
        # nvdiag, llm-demo, libnvgpu_sim.so and libnvdiag_capture.so. Kernels are committed as cubins: no NVIDIA tool is needed.
        toolkit = pkgs.rustPlatform.buildRustPackage {
          pname = "ga10b-toolkit";
          version = "0.1.0";
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          cargoBuildFlags = [ "-p" "nvdiag" "-p" "llm-demo" "-p" "ga10b-sim-preload" "-p" "ga10b-capture-preload" ];
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            $out/bin/nvdiag man man
            $out/bin/llm-demo man man
            installManPage man/*.1
            installShellCompletion --cmd nvdiag --bash <($out/bin/nvdiag completions bash) \
              --zsh <($out/bin/nvdiag completions zsh) --fish <($out/bin/nvdiag completions fish)
            installShellCompletion --cmd llm-demo --bash <($out/bin/llm-demo completions bash) \
              --zsh <($out/bin/llm-demo completions zsh) --fish <($out/bin/llm-demo completions fish)
          '';
          doCheck = false; # the suite needs minutes; `nix develop -c cargo test --workspace --release` runs it
          meta.license = pkgs.lib.licenses.mit;
        };
      });

      devShells = forAll (pkgs: {
        default = pkgs.mkShell {
          packages = with pkgs; [
            cargo rustc rustfmt clippy cargo-deny # the compilers, and the check of deny.toml
            python3 git curl gawk gnugrep coreutils jq gcc pkg-config # tools/ and the commands in docs/
          ];
          # For `--features bindgen`, which regenerates the bindings.
          LIBCLANG_PATH = "${pkgs.libclang.lib}/lib";
        };
      });
    };
}
