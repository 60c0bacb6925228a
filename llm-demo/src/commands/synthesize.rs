//! Writes a model with random weights.

use std::path::Path;

use ga10b_llm::synthesize::Synthesis;

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::progress;

pub fn run(cli: &Cli, synthesis: &Synthesis, path: &Path) -> anyhow::Result<Outcome> {
    let bar = progress::byte_bar("writing");
    let written = synthesis.write_file(cli.sampling.seed.unwrap_or(0), path, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    written?;
    anstream::eprintln!("{}: {:.1} MB of tensors", path.display(), synthesis.tensor_bytes() as f64 / 1e6);
    Ok(Outcome::Good)
}
