//! Tokens that are proposed, and verified several in one step.

use std::path::PathBuf;

use clap::Args;
use ga10b_llm::speculate::SpeculatorOptions;

/// Tokens of a proposal by default: with the newest one as many as the smallest step has room for.
const DEFAULT_MOST: usize = 7;

/// Options of speculative decoding. The text is the same as without a draft, token by token.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Speculative decoding")]
pub struct Speculation {
    /// Propose what followed the last tokens where prompt or text had them before, and verify several tokens
    /// in one step
    #[arg(long, group = "drafting")]
    pub lookup: bool,

    /// Propose tokens of a smaller model of the same vocabulary, in a GGUF file
    #[arg(long, value_name = "FILE", group = "drafting")]
    pub draft: Option<PathBuf>,

    /// Most tokens that --lookup or --draft propose for a step, 1 to 31; fewer where fewer are faster
    /// [default: 7]
    #[arg(long, value_name = "K", requires = "drafting", value_parser = clap::value_parser!(u32).range(1..=31))]
    pub draft_max: Option<u32>,

    /// Propose as many tokens as the draft has, up to --draft-max, also where fewer are faster
    #[arg(long, requires = "drafting")]
    pub draft_always: bool,
}

impl Speculation {
    /// Whether there is a draft.
    pub fn is_asked(&self) -> bool {
        self.lookup || self.draft.is_some()
    }

    /// Most tokens of a proposal.
    pub fn most(&self) -> usize {
        self.draft_max.map_or(DEFAULT_MOST, |most| most as usize)
    }

    /// The options of a speculator.
    pub fn options(&self) -> SpeculatorOptions {
        let options = SpeculatorOptions::new(self.most());
        if self.draft_always { options.fixed() } else { options }
    }
}
