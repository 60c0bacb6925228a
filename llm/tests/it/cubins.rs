//! The committed kernels are the ones that the code describes. Their hashes say so of all; a sample is compiled
//! again where there is a `ptxas`, and all with `NIGHTLY=1`. No other test compiles them.

use std::path::Path;

use ga10b_llm::kernels;
use ga10b_llm::kernels::committed::TARGETS;
use ptxgen::{Manifest, Named, Ptxas};

#[test]
fn committed_cubins_match_their_ptx() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let version = Manifest::read(&dir).unwrap().ptxas;
    let ptxas = Ptxas::find().ok().filter(|ptxas| ptxas.version() == version);
    if ptxas.is_none() {
        ga10b_oracles::missing("ptxas", format_args!("version {version} is not found"));
    }
    let modules: Vec<Named> = TARGETS.into_iter().flat_map(kernels::modules).collect();
    let (all, some) = if ga10b_oracles::nightly() { (ptxas, None) } else { (None, ptxas) };
    let wrong = Manifest::check(&dir, &modules, all.as_ref()).unwrap();
    let mut wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    if let Some(ptxas) = some {
        for Named { name, module } in ga10b_oracles::sample("kernels that are compiled", modules, 40) {
            let file = format!("{name}.{}.cubin", module.target());
            let fresh = ptxas.compile(&module.text(), module.target()).unwrap();
            if fresh != std::fs::read(dir.join(&file)).unwrap() {
                wrong.push(format!("{file} differs from what ptxas makes of its PTX"));
            }
        }
    }
    assert!(wrong.is_empty(), "run `cargo run -p ga10b-llm --example build_kernels`:\n{}", wrong.join("\n"));
}
