//! Options of sampling.

use clap::Args;
use ga10b_llm::sampler::Penalties;
use ga10b_llm::{Sampler, SamplerOptions};

use crate::cli::values::{Bias, finite, fraction, not_negative, positive, seed, whole};

/// Options of the choice. With penalties or biases the CPU chooses, also where the GPU could.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct Sampling {
    /// Temperature of the choice; 0 takes the most likely token [default: 0, or 0.8 with another sampling
    /// option]
    #[arg(long, value_name = "T", value_parser = not_negative)]
    pub temp: Option<f32>,

    /// Choose among the K most likely tokens; 0 for all [default: 40]
    #[arg(long, value_name = "K", value_parser = whole)]
    pub top_k: Option<u32>,

    /// Choose among the most likely tokens that have this probability together [default: 0.95]
    #[arg(long, value_name = "P", value_parser = fraction)]
    pub top_p: Option<f32>,

    /// Exclude tokens less likely than this share of the most likely one's probability [default: 0.05]
    #[arg(long, value_name = "P", value_parser = fraction)]
    pub min_p: Option<f32>,

    /// Seed of the random sequence [default: 0]
    #[arg(long, value_name = "S", value_parser = seed)]
    pub seed: Option<u64>,

    /// Divide the logits of the last tokens by F if they are positive, multiply them if they are negative; 1
    /// for none [default: 1]
    #[arg(long, value_name = "F", value_parser = positive)]
    pub repeat_penalty: Option<f32>,

    /// Tokens of prompt and text that --repeat-penalty is for [default: 64]
    #[arg(long, value_name = "N", value_parser = whole)]
    pub repeat_last_n: Option<u32>,

    /// Take F from the logits of tokens that the text has [default: 0]
    #[arg(long, value_name = "F", value_parser = finite)]
    pub presence_penalty: Option<f32>,

    /// Take F from the logit of a token for each time that the text has it [default: 0]
    #[arg(long, value_name = "F", value_parser = finite)]
    pub frequency_penalty: Option<f32>,

    /// Add to the logits of tokens, by their numbers; llm-demo tokenize prints those of a text. With penalties
    /// or biases the CPU chooses tokens, also where the GPU could
    #[arg(long, value_name = "TOKEN=BIAS,..", value_delimiter = ',')]
    pub logit_bias: Vec<Bias>,
}

impl Sampling {
    /// A sampler. Any option of the draw disables greedy choice; penalties and biases do not.
    pub fn sampler(&self) -> Sampler {
        Sampler::new(self.options()).with_penalties(self.penalties()).with_bias(self.bias())
    }

    pub fn options(&self) -> SamplerOptions {
        let asked =
            self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some() || self.seed.is_some();
        self.options_at(if asked { 0.8 } else { 0.0 })
    }

    /// As [`Sampling::options`], with `temperature` where none is given.
    pub fn options_at(&self, temperature: f32) -> SamplerOptions {
        SamplerOptions {
            temperature: self.temp.unwrap_or(temperature),
            top_k: self.top_k.unwrap_or(40) as usize,
            top_p: self.top_p.unwrap_or(0.95),
            min_p: self.min_p.unwrap_or(0.05),
            seed: self.seed.unwrap_or(0),
        }
    }

    pub fn penalties(&self) -> Penalties {
        let none = Penalties::NONE;
        Penalties {
            repeat: self.repeat_penalty.unwrap_or(none.repeat),
            last: self.repeat_last_n.map_or(none.last, |n| n as usize),
            presence: self.presence_penalty.unwrap_or(none.presence),
            frequency: self.frequency_penalty.unwrap_or(none.frequency),
        }
    }

    pub fn bias(&self) -> Vec<(u32, f32)> {
        self.logit_bias.iter().map(|Bias(token, bias)| (*token, *bias)).collect()
    }
}
