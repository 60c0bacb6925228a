//! Generates the bindings when asked to; a plain build does nothing here and needs no libclang.
//!
//! With the feature `bindgen`:
//! - `src/bindings.rs` is written anew from `include/*.h`. On an unchanged tree that is no change at all.
//! - with `NVGPU_UAPI_DIR` set to a folder of kernel headers (the one that holds `nvgpu.h` or `linux/nvgpu.h`), those are
//!   turned into the module `host` instead, and the committed file is left alone. Numbers that differ from the committed
//!   ones are named as warnings of the build: request numbers carry the size of their struct, so these are too.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=NVGPU_UAPI_DIR");
    println!("cargo:rustc-check-cfg=cfg(nvgpu_uapi)");
    #[cfg(feature = "bindgen")]
    generate::run();
}

#[cfg(feature = "bindgen")]
mod generate {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use bindgen::callbacks::{DeriveInfo, DeriveTrait, ImplementsTrait, IntKind, ParseCallbacks};

    /// Gives every struct of our own headers the derives that let it travel as bytes.
    #[derive(Debug)]
    struct Own;

    impl ParseCallbacks for Own {
        fn add_derives(&self, _: &DeriveInfo<'_>) -> Vec<String> {
            ["FromBytes", "IntoBytes", "Immutable", "KnownLayout"].map(|d| format!("zerocopy::{d}")).into()
        }

        /// The integer types are the only ones left out of the bindings, in favour of Rust's.
        fn blocklisted_type_implements_trait(&self, _: &str, _: DeriveTrait) -> Option<ImplementsTrait> {
            Some(ImplementsTrait::Yes)
        }
    }

    /// Gives every constant the width it is used at.
    #[derive(Debug)]
    struct Widths;

    impl ParseCallbacks for Widths {
        fn int_macro(&self, name: &str, value: i64) -> Option<IntKind> {
            Some(match value {
                _ if name.starts_with("NVGPU_GPU_FLAGS_") => IntKind::U64,
                0..=0xffff_ffff => IntKind::U32,
                -0x8000_0000..0 => IntKind::I32,
                _ => IntKind::U64,
            })
        }
    }

    fn builder(header: &Path, out_dir: &Path) -> bindgen::Builder {
        bindgen::Builder::default()
            .header(header.to_str().expect("the path of the headers is not UTF-8"))
            .clang_macro_fallback()
            .clang_macro_fallback_build_dir(out_dir)
            .allowlist_item("(nvgpu|NVGPU|nvgpu32|NVGPU32|nvmap|NVMAP|NV_KIND)_.*|warpstate")
            .derive_default(true)
            .parse_callbacks(Box::new(Widths))
            .formatter(bindgen::Formatter::Prettyplease)
    }

    pub fn run() {
        let var = |name| std::env::var_os(name).map(PathBuf::from);
        let (Some(root), Some(out_dir)) = (var("CARGO_MANIFEST_DIR"), var("OUT_DIR")) else {
            panic!("cargo sets CARGO_MANIFEST_DIR and OUT_DIR")
        };
        match var("NVGPU_UAPI_DIR") {
            None => own(&root, &out_dir),
            Some(dir) => host(&root, &dir, &out_dir),
        }
    }

    /// Writes `src/bindings.rs` from our own headers.
    fn own(root: &Path, out_dir: &Path) {
        println!("cargo:rerun-if-changed=include");
        let bindings = builder(&root.join("include/nvgpu-sys.h"), out_dir)
            .blocklist_type("__[us](8|16|32|64)")
            .raw_line("type __u8 = u8;\ntype __s8 = i8;\ntype __u16 = u16;\ntype __s16 = i16;")
            .raw_line("type __u32 = u32;\ntype __s32 = i32;\ntype __u64 = u64;\ntype __s64 = i64;")
            .parse_callbacks(Box::new(Own))
            .generate()
            .expect("include/nvgpu-sys.h does not parse");
        let path = root.join("src/bindings.rs");
        let new = bindings.to_string();
        if std::fs::read_to_string(&path).is_ok_and(|old| old == new) {
            return;
        }
        std::fs::write(&path, new).expect("src/bindings.rs cannot be written");
    }

    /// Writes `$OUT_DIR/host.rs` from the kernel headers in `dir`.
    fn host(root: &Path, dir: &Path, out_dir: &Path) {
        println!("cargo:rerun-if-changed={}", dir.display());
        let dir = if dir.join("linux/nvgpu.h").exists() { dir.join("linux") } else { dir.to_path_buf() };
        let include: String = ["nvgpu-ctrl.h", "nvgpu-as.h", "nvgpu.h", "nvgpu-event.h", "nvmap.h"]
            .iter()
            .map(|name| dir.join(name))
            .filter(|path| path.exists())
            .map(|path| format!("#include \"{}\"\n", path.display()))
            .collect();
        assert!(!include.is_empty(), "NVGPU_UAPI_DIR={} holds no nvgpu header", dir.display());
        let header = out_dir.join("host.h");
        std::fs::write(&header, format!("#define __user\n{include}")).expect("OUT_DIR cannot be written");
        let bindings = builder(&header, out_dir)
            .clang_arg(format!("-I{}", dir.parent().unwrap_or(&dir).display()))
            .generate()
            .expect("the headers in NVGPU_UAPI_DIR do not parse")
            .to_string();
        std::fs::write(out_dir.join("host.rs"), &bindings).expect("OUT_DIR cannot be written");
        println!("cargo:rustc-cfg=nvgpu_uapi");

        let committed =
            std::fs::read_to_string(root.join("src/bindings.rs")).expect("src/bindings.rs is committed");
        let (ours, theirs) = (numbers(&committed), numbers(&bindings));
        for (name, value) in &theirs {
            if let Some(our) = ours.get(name).filter(|our| our.as_str() != value) {
                println!("cargo:warning={name} is {value} in these headers and {our} in this crate");
            }
        }
    }

    /// The constants of generated bindings, as text: `pub const NAME: type = value;`.
    fn numbers(bindings: &str) -> BTreeMap<String, String> {
        let parts = |line: &str| {
            let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
            let value = rest.split_once(" = ")?.1.strip_suffix(';')?;
            // The kernel's headers write magics as characters.
            Some((name.to_owned(), value.trim_end_matches("u8").to_owned()))
        };
        bindings.lines().filter_map(parts).collect()
    }
}
