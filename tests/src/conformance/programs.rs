//! The programs that are generated here and committed.

use std::path::Path;

use anyhow::Result;
use ptxgen::{Manifest, Mismatch, Named, Ptxas, Target};

use crate::conformance::case::Case;
use crate::conformance::{convergence, corpus, edges, exchange};
use crate::conformance::{links, matrix, mufu, random, suite, warpgroup};

/// The targets of the programs: one for each encoding of instructions.
const TARGETS: [Target; 2] = [Target::Sm87, Target::Sm90];

/// All modules that are generated here and committed, for all targets.
fn modules() -> Vec<Named> {
    TARGETS
        .into_iter()
        .flat_map(|target| {
            let mut modules = random::modules(target);
            modules.push(mufu::module(target));
            modules.push(edges::module(target));
            modules.push(exchange::module(target));
            modules.push(links::module(target));
            modules
        })
        .chain([warpgroup::module(Target::Sm87), warpgroup::module(Target::Sm90a)])
        .collect()
}

/// Compiles the generated programs into `dir`, beside their PTX (that for sm_87, and that for other targets
/// where it differs in more than version and target) and a manifest.
///
/// # Errors
/// Without `ptxas`, if it refuses a program, and if a file cannot be written.
pub fn regenerate(dir: &Path) -> Result<Manifest> {
    let modules = modules();
    let manifest = Manifest::generate(dir, &modules, &Ptxas::find()?)?;
    for Named { name, module } in &modules {
        let (target, text) = (module.target(), module.text());
        let main = modules.iter().find(|m| m.name == *name && m.module.target() == Target::Sm87);
        let file = match main {
            _ if target == Target::Sm87 => format!("{name}.ptx"),
            Some(main) if same_code(&text, &main.module.text()) => continue,
            _ => format!("{name}.{target}.ptx"),
        };
        std::fs::write(dir.join(file), text)?;
    }
    Ok(manifest)
}

/// Whether two modules differ in their first lines alone, which state version and target.
fn same_code(one: &str, other: &str) -> bool {
    one.lines().skip(2).eq(other.lines().skip(2))
}

/// The differences of the cubins in `dir` from those that the generator writes now; recompiles them where the
/// same `ptxas` is at hand.
///
/// # Errors
/// If a file cannot be read or the programs no longer compile.
pub fn check(dir: &Path) -> Result<Vec<Mismatch>> {
    Ok(Manifest::check(dir, &modules(), Ptxas::find().ok().as_ref())?)
}

/// Every case there is, but those of the language model.
pub fn cases() -> Vec<Case> {
    let mut cases = random::cases();
    cases.extend(edges::cases());
    cases.extend(exchange::cases());
    cases.extend(links::cases());
    cases.extend(corpus::cases());
    cases.extend(matrix::cases());
    cases.extend(warpgroup::cases());
    cases.extend(suite::cases());
    cases.extend(convergence::cases());
    cases.extend(mufu::cases());
    cases
}
