//! The parameters of kernels, as the compiler lists them in a cubin.

use std::collections::HashMap;

use hcq::cubin::{File, Parameter};

/// The parameters of each kernel of a cubin, by name; of one whose list cannot be read none.
pub(crate) fn parameters(cubin: &[u8]) -> HashMap<String, Vec<Parameter>> {
    let Ok(file) = File::parse(cubin) else { return HashMap::new() };
    let listed = file.kernels().map(|kernel| {
        let parameters = file.resources(&kernel).map(|resources| resources.parameters);
        (kernel.name.to_owned(), parameters.unwrap_or_default())
    });
    listed.collect()
}
