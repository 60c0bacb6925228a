//! Tests that need a `ptxas`: its messages, the cache of compiled modules, and manifests of committed cubins.

use std::fs;

use ptxgen::{Error, Kernel, KernelCache, Manifest, Mismatch, Module, Named, Ptxas, Target};

/// The compiler; `None` after saying that there is none.
fn ptxas() -> Option<Ptxas> {
    Ptxas::find().map_err(|error| ga10b_oracles::missing("ptxas", error)).ok()
}

#[test]
fn refused_ptx_shows_the_offending_line() {
    let Some(ptxas) = ptxas() else { return };
    let ptx = ".version 7.4\n.target sm_87\n.address_size 64\n.visible .entry k()\n{\n  bogus.u32 %r1;\n}\n";
    let Err(Error::Refused { excerpt, .. }) = ptxas.compile(ptx, Target::Sm87) else {
        panic!("nonsense was accepted");
    };
    assert!(excerpt.contains("    6 |   bogus.u32"), "{excerpt}");
}

#[test]
fn a_second_compilation_comes_from_the_cache_and_damage_is_noticed() {
    let Some(ptxas) = ptxas() else { return };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("kernels");
    let cache = KernelCache::at(folder.clone());
    let mut module = Module::new(Target::Sm87);
    module.add(Kernel::new("nothing"));
    let first = cache.compile(&ptxas, &module.text(), Target::Sm87).unwrap();
    let kept: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [path] = kept.as_slice() else { panic!("one file is kept: {kept:?}") };
    assert_eq!(fs::read(path).unwrap(), first);
    fs::write(path, b"\x7fELF and no more").unwrap();
    assert_eq!(cache.compile(&ptxas, &module.text(), Target::Sm87).unwrap(), b"\x7fELF and no more");
    fs::write(path, b"").unwrap();
    assert_eq!(cache.compile(&ptxas, &module.text(), Target::Sm87).unwrap(), first);
}

fn modules(body: &str) -> Vec<Named> {
    Target::ALL
        .map(|target| {
            let k = Kernel::new("k");
            k.comment(body);
            let mut module = Module::new(target);
            module.add(k);
            Named { name: "k".to_owned(), module }
        })
        .into()
}

#[test]
fn a_committed_cubin_matches_until_its_ptx_or_its_file_changes() {
    let Some(ptxas) = ptxas() else { return };
    let dir = tempfile::tempdir().unwrap();
    Manifest::generate(dir.path(), &modules("a"), &ptxas).unwrap();
    assert_eq!(Manifest::check(dir.path(), &modules("a"), Some(&ptxas)).unwrap(), []);
    let changed = Manifest::check(dir.path(), &modules("b"), None).unwrap();
    let all = Target::ALL.map(|target| Mismatch::Ptx(format!("k.{target}.cubin")));
    assert_eq!(changed, all);
    fs::write(dir.path().join("k.sm_87.cubin"), b"other").unwrap();
    fs::write(dir.path().join("x.sm_87.cubin"), b"stray").unwrap();
    let wrong = Manifest::check(dir.path(), &modules("a"), None).unwrap();
    assert_eq!(
        wrong,
        [Mismatch::Extra("x.sm_87.cubin".to_owned()), Mismatch::File("k.sm_87.cubin".to_owned())]
    );
    Manifest::generate(dir.path(), &modules("a"), &ptxas).unwrap();
    assert_eq!(Manifest::check(dir.path(), &modules("a"), Some(&ptxas)).unwrap(), []);
    Manifest::generate(dir.path(), &modules("b"), &ptxas).unwrap();
    assert_eq!(Manifest::check(dir.path(), &modules("b"), Some(&ptxas)).unwrap(), []);
}

#[test]
fn other_bytes_from_the_same_ptx_are_noticed_among_many() {
    let Some(ptxas) = ptxas() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = Manifest::generate(dir.path(), &modules("a"), &ptxas).unwrap();
    let damaged = &mut manifest.cubins[3];
    let path = dir.path().join(&damaged.file);
    let mut bytes = fs::read(&path).unwrap();
    bytes.push(0);
    fs::write(&path, &bytes).unwrap();
    damaged.cubin_sha256 = ptxgen::sha256(&bytes);
    let wrong = vec![Mismatch::Recompiled(damaged.file.clone())];
    fs::write(dir.path().join("manifest.json"), serde_json::to_vec(&manifest).unwrap()).unwrap();
    assert_eq!(Manifest::check(dir.path(), &modules("a"), Some(&ptxas)).unwrap(), wrong);
    // What the manifest says was made of the same PTX is not compiled again.
    assert_eq!(Manifest::generate(dir.path(), &modules("a"), &ptxas).unwrap(), manifest);
}
