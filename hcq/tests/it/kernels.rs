//! The committed machine code is made from the committed PTX, and from the kernel of the ptxgen example.

use std::fs;
use std::path::{Path, PathBuf};

use ptxgen::{Manifest, Mismatch, Named, Ptxas, Target, sha256};

#[expect(dead_code, reason = "only its kernel is looked at here")]
#[path = "../../examples/04_ptxgen.rs"]
mod ptxgen_example;

/// Folders of kernels whose PTX is written by hand, `NAME.ptx` beside `NAME.sm_NN.cubin`.
const BY_HAND: [&str; 3] = ["kernels", "examples/kernels", "tests/kernels"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The ptxas that made the committed code, if it is here.
fn compiler(manifest: &Manifest) -> Option<Ptxas> {
    let found =
        Ptxas::find().ok().filter(|p| p.version() == manifest.ptxas && manifest.flags == Ptxas::FLAGS);
    if found.is_none() {
        eprintln!("skipped: no ptxas {}", manifest.ptxas);
    }
    found
}

#[test]
fn committed_code_is_what_the_manifests_describe() {
    for name in BY_HAND {
        let dir = folder(name);
        let manifest = Manifest::read(&dir).unwrap();
        for cubin in &manifest.cubins {
            let stem = cubin.file.split('.').next().unwrap();
            let ptx = fs::read(dir.join(format!("{stem}.ptx"))).unwrap();
            assert_eq!(cubin.file, format!("{stem}.{}.cubin", cubin.target));
            assert_eq!(cubin.ptx_sha256, sha256(&ptx), "{name}/{stem}.ptx has changed: compile it again");
            let code = fs::read(dir.join(&cubin.file)).unwrap();
            assert_eq!(cubin.cubin_sha256, sha256(&code), "{name}/{}", cubin.file);
            let file = hcq::cubin::File::parse(&code).unwrap();
            let mut kernels: Vec<_> = file.kernels().map(|kernel| kernel.name).collect();
            kernels.sort_unstable();
            assert_eq!(kernels, cubin.kernels);
        }
        let listed = |file: &str| manifest.cubins.iter().any(|c| c.file == file);
        for entry in fs::read_dir(&dir).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            assert!(!file.ends_with(".cubin") || listed(&file), "{name}/{file} is in no manifest");
        }
    }
}

#[test]
fn the_same_compiler_makes_the_same_code() {
    for name in BY_HAND {
        let dir = folder(name);
        let manifest = Manifest::read(&dir).unwrap();
        let Some(ptxas) = compiler(&manifest) else { return };
        for cubin in &manifest.cubins {
            let stem = cubin.file.split('.').next().unwrap();
            let made = tempfile::NamedTempFile::new().unwrap();
            let status = std::process::Command::new(ptxas.path())
                .args(Ptxas::FLAGS)
                .arg(format!("-arch={}", cubin.target))
                .arg("-o")
                .args([made.path(), &dir.join(format!("{stem}.ptx"))])
                .status();
            assert!(status.unwrap().success());
            assert!(
                fs::read(made.path()).unwrap() == fs::read(dir.join(&cubin.file)).unwrap(),
                "{}",
                cubin.file
            );
        }
    }
}

/// With `UPDATE=1` and a ptxas the committed code is made anew.
#[test]
fn the_ptxgen_example_falls_back_to_code_of_its_own_kernel() {
    let dir = folder("examples/kernels/ptxgen");
    let named = |target| Named { name: "scale".to_owned(), module: ptxgen_example::module(target) };
    let modules: Vec<Named> = Target::ALL.into_iter().map(named).collect();
    if std::env::var_os("UPDATE").is_some() {
        Manifest::generate(&dir, &modules, &Ptxas::find().unwrap()).unwrap();
    }
    let ptxas = compiler(&Manifest::read(&dir).unwrap());
    assert_eq!(Manifest::check(&dir, &modules, ptxas.as_ref()).unwrap(), Vec::<Mismatch>::new());
}
