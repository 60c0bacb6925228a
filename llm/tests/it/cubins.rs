//! The committed kernels are the ones that the code describes.

use std::path::Path;

use ga10b_llm::kernels;
use ga10b_llm::kernels::committed::TARGETS;
use ptxgen::{Manifest, Ptxas};

#[test]
fn committed_cubins_match_their_ptx() {
    let ptxas = Ptxas::find().ok();
    if ptxas.is_none() {
        eprintln!("skipped: no ptxas, hashes only");
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let modules: Vec<_> = TARGETS.into_iter().flat_map(kernels::modules).collect();
    let wrong = Manifest::check(&dir, &modules, ptxas.as_ref()).unwrap();
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "run `cargo run -p ga10b-llm --example build_kernels`:\n{}", wrong.join("\n"));
}
