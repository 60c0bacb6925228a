//! Writes a model with random weights.

use crate::cli::commands::Synthesize;
use crate::outcome::Outcome;
use crate::progress;

pub fn run(synthesize: &Synthesize) -> anyhow::Result<Outcome> {
    let Synthesize { spec, file, seed } = synthesize;
    let bar = progress::byte_bar("writing");
    let written = spec.write_file(*seed, file, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    written?;
    anstream::eprintln!("{}: {:.1} MB of tensors", file.display(), spec.tensor_bytes() as f64 / 1e6);
    Ok(Outcome::Good)
}
