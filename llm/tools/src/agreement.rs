//! Greedy decode by two engines: whether two ways to launch a step choose the same tokens.

use serde::Serialize;

use ga10b_llm::compare::Bounds;
use ga10b_llm::{Decoder, Engine, Result};

/// A token that two engines chose differently after the same tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Tokens in the context of both.
    pub position: usize,
    /// The choices: of the engine that is checked, then of the other.
    pub tokens: [u32; 2],
    /// The logit of each engine's own choice minus its logit of the other's choice.
    pub margins: [f32; 2],
    /// Margins up to this are within the bounds of a comparison of logits.
    pub tie: f32,
}

impl Difference {
    /// Whether the two tokens are equally likely to both engines, within their precision.
    pub fn is_tie(&self) -> bool {
        self.margins.iter().all(|margin| *margin <= self.tie)
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    /// Tokens that were compared.
    pub tokens: usize,
    /// Different choices of equally likely tokens; both engines continue with the choice of the second.
    pub ties: Vec<Difference>,
    /// The difference that ended the comparison.
    pub difference: Option<Difference>,
}

/// Both engines process `prompt` and then choose up to `count` tokens; the first difference that is no tie
/// ends the comparison. `progress` is called after each token.
///
/// # Errors
/// The errors of the engines, for example a full context.
///
/// # Panics
/// If the prompt is empty.
pub fn compare(
    checked: &mut Engine,
    against: &mut Engine,
    prompt: &[u32],
    count: usize,
    progress: &mut dyn FnMut(),
) -> Result<Agreement> {
    let (last, before) = prompt.split_last().expect("a prompt of at least one token");
    for token in before {
        checked.step_greedy(*token)?;
        against.step_greedy(*token)?;
    }
    let mut agreement = Agreement::default();
    let mut token = *last;
    for _ in 0..count {
        let tokens = [checked.step_greedy(token)?, against.step_greedy(token)?];
        agreement.tokens += 1;
        progress();
        token = tokens[1];
        if tokens[0] == tokens[1] {
            continue;
        }
        let logits = [checked.logits()?, against.logits()?];
        let [first, second] = tokens.map(|t| t as usize);
        let squares: f64 = logits[1].iter().map(|l| f64::from(*l).powi(2)).sum();
        let rms = (squares / logits[1].len() as f64).sqrt();
        let difference = Difference {
            position: against.position(),
            tokens,
            margins: [logits[0][first] - logits[0][second], logits[1][second] - logits[1][first]],
            // Twice, because each of the two logits may have this error.
            tie: (2.0 * Bounds::FLOAT.nmse.sqrt() * rms) as f32,
        };
        match difference.is_tie() {
            true => agreement.ties.push(difference),
            false => {
                agreement.difference = Some(difference);
                break;
            }
        }
    }
    Ok(agreement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_a_tie_where_neither_is_sure() {
        let of = |margins| Difference { position: 3, tokens: [1, 2], margins, tie: 0.01 };
        assert!(of([0.0, 0.01]).is_tie());
        assert!(!of([0.02, 0.0]).is_tie());
        assert!(!of([0.0, 0.02]).is_tie());
        assert!(!of([f32::NAN, 0.0]).is_tie());
    }
}
