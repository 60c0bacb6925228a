//! Generates the bindings when asked to; a plain build does nothing here and needs no libclang.
//!
//! With the feature `bindgen`, `src/bindings.rs` is written anew from `include/*.h`. On an unchanged tree that is no
//! change at all.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "bindgen")]
    generate::run();
}

#[cfg(feature = "bindgen")]
mod generate {
    use std::path::PathBuf;

    use bindgen::callbacks::{DeriveInfo, DeriveTrait, ImplementsTrait, IntKind, ParseCallbacks};

    /// Gives every struct the derives that let it travel as bytes, and makes every number a `u32`.
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

        fn int_macro(&self, _: &str, _: i64) -> Option<IntKind> {
            Some(IntKind::U32)
        }
    }

    pub fn run() {
        println!("cargo:rerun-if-changed=include");
        let var = |name| std::env::var_os(name).map(PathBuf::from);
        let (Some(root), Some(out_dir)) = (var("CARGO_MANIFEST_DIR"), var("OUT_DIR")) else {
            panic!("cargo sets CARGO_MANIFEST_DIR and OUT_DIR")
        };
        let header = root.join("include/rm-sys.h");
        let new = bindgen::Builder::default()
            .header(header.to_str().expect("the path of the headers is not UTF-8"))
            .clang_macro_fallback()
            .clang_macro_fallback_build_dir(&out_dir)
            .blocklist_type("__[us](8|16|32|64)")
            .blocklist_item("__.*|RM_ESCAPE")
            .raw_line(
                "type __u8 = u8;\ntype __u16 = u16;\ntype __u32 = u32;\ntype __s32 = i32;\ntype __u64 = u64;",
            )
            .derive_default(true)
            .formatter(bindgen::Formatter::Prettyplease)
            .allowlist_file(".*/include/[a-z-]*[.]h")
            .parse_callbacks(Box::new(Own))
            .generate()
            .expect("include/rm-sys.h does not parse")
            .to_string();
        let path = root.join("src/bindings.rs");
        if std::fs::read_to_string(&path).is_ok_and(|old| old == new) {
            return;
        }
        std::fs::write(&path, new).expect("src/bindings.rs cannot be written");
    }
}
