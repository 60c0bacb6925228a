//! What a text has to be.

use std::path::PathBuf;

use clap::Args;

/// Options of what a text has to be. The CPU chooses its tokens, also where the GPU could.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Constraints")]
pub struct Constraints {
    /// The text is JSON that the schema in this file accepts
    #[arg(long, value_name = "FILE", conflicts_with = "grammar")]
    pub json_schema: Option<PathBuf>,

    /// The text is one of the grammar in this file, in Lark's notation
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<PathBuf>,
}

impl Constraints {
    pub fn are_given(&self) -> bool {
        self.json_schema.is_some() || self.grammar.is_some()
    }
}
