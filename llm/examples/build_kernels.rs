//! Compiles the decode kernels into `llm/kernels/` and rewrites its manifest. Needs a `ptxas` (see
//! `ptxgen::Ptxas`).

use std::path::Path;

use ptxgen::{Manifest, Ptxas, Target};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let ptxas = Ptxas::find()?;
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let modules: Vec<_> = Target::ALL.into_iter().flat_map(ga10b_llm::kernels::modules).collect();
    if let Some(dir) = std::env::args_os().nth(1) {
        for named in &modules {
            let path = Path::new(&dir).join(format!("{}.{}.ptx", named.name, named.module.target()));
            std::fs::write(&path, named.module.text())
                .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        }
    }
    let manifest = Manifest::generate(&dir, &modules, &ptxas)?;
    println!("{} cubins by {ptxas} in {}", manifest.cubins.len(), dir.display());
    Ok(())
}
