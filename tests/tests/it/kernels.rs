//! The hand-written kernels: the committed cubins are those of their PTX, and code for every SM of the 8.x
//! encoding does the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use ga10b_tests::conformance::{Case, Comparison, Runner, matrix};
use ptxgen::{Manifest, Ptxas, sha256};
use sass::Arch;

/// Folders with a manifest of `tools/suite-kernels.py`.
const FOLDERS: [&str; 3] = ["tests/kernels", "tests/checker", "sim/tests/data"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join(name)
}

/// The PTX that a cubin of the manifest was made of.
fn source(folder: &Path, cubin: &str) -> PathBuf {
    folder.join(cubin.split('.').next().expect("a name")).with_extension("ptx")
}

#[test]
fn committed_cubins_are_those_of_the_manifest_and_the_manifest_is_of_their_ptx() {
    for name in FOLDERS {
        let folder = folder(name);
        let manifest = Manifest::read(&folder).unwrap();
        assert!(manifest.cubins.len() >= 6, "{name}: {} cubins", manifest.cubins.len());
        for cubin in &manifest.cubins {
            let bytes = std::fs::read(folder.join(&cubin.file)).unwrap();
            let ptx = std::fs::read(source(&folder, &cubin.file)).unwrap();
            assert_eq!(
                sha256(&bytes),
                cubin.cubin_sha256,
                "{name}/{}: run tools/suite-kernels.py",
                cubin.file
            );
            assert_eq!(sha256(&ptx), cubin.ptx_sha256, "{name}/{}: run tools/suite-kernels.py", cubin.file);
        }
    }
}

#[test]
fn the_same_ptxas_makes_the_same_cubins() {
    let ptxas = match Ptxas::find() {
        Ok(ptxas) => ptxas,
        Err(error) => return ga10b_oracles::missing("ptxas", error),
    };
    let scratch = tempfile::tempdir().unwrap();
    for name in FOLDERS {
        let folder = folder(name);
        let manifest = Manifest::read(&folder).unwrap();
        if manifest.ptxas != ptxas.version() {
            return ga10b_oracles::missing("ptxas", format_args!("{ptxas} is not {}", manifest.ptxas));
        }
        for cubin in &manifest.cubins {
            let made = scratch.path().join(&cubin.file);
            let status = Command::new(ptxas.path())
                .args(&manifest.flags)
                .arg(format!("-arch={}", cubin.target))
                .arg(source(&folder, &cubin.file))
                .arg("-o")
                .arg(&made)
                .status();
            assert!(status.unwrap().success(), "{name}/{}", cubin.file);
            assert_eq!(sha256(&std::fs::read(&made).unwrap()), cubin.cubin_sha256, "{name}/{}", cubin.file);
        }
    }
}

#[test]
fn matrix_products_are_the_same_on_every_sm_of_the_8x_encoding() {
    let cubins: [(Arch, &'static [u8]); 3] = [
        (Arch::Sm80, include_bytes!("../../kernels/matrix.sm_80.cubin")),
        (Arch::Sm86, include_bytes!("../../kernels/matrix.sm_86.cubin")),
        (Arch::Sm89, include_bytes!("../../kernels/matrix.sm_89.cubin")),
    ];
    let mut sm87 = Runner::simulated(Arch::Sm87, 1).unwrap();
    for (arch, cubin) in cubins {
        let mut other = Runner::simulated(arch, 2).unwrap();
        let mut comparison = Comparison::new(&format!("{arch} / sm_87"));
        for case in matrix::cases() {
            let expected = sm87.run(&case).unwrap();
            let case = Case { cubins: [cubin, case.cubins[1]], ..case };
            comparison.compare(&case, &other.run(&case).unwrap(), &expected);
        }
        assert!(comparison.agrees(), "{comparison}");
    }
}
