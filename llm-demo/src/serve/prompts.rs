//! The results that the engine tells of a prompt, until it has told all.

use ga10b_llm::Tokenizer;
use ga10b_llm::sampler::Logprobs;
use ga10b_llm::schedule::Reading;

use crate::serve::calls::Part;
use crate::serve::job::{Event, Piece, Request, Weighed};

/// Results of a prompt.
#[derive(Debug, Default)]
pub struct Told {
    /// The probabilities of all tokens but the first.
    known: Vec<Logprobs>,
    /// The sum of hidden states, and their number.
    states: (Vec<f64>, usize),
    /// Whether they are part of the answer.
    passed: bool,
}

impl Told {
    /// Takes the probabilities of the next token.
    pub fn known(&mut self, logprobs: Logprobs) {
        self.known.push(logprobs);
    }

    /// Takes a hidden state.
    pub fn state(&mut self, state: &[f32]) {
        let (sum, count) = &mut self.states;
        sum.resize(state.len(), 0.0);
        sum.iter_mut().zip(state).for_each(|(sum, value)| *sum += f64::from(*value));
        *count += 1;
    }

    /// The part of the answer that is before all text, once all is told.
    pub fn pass(&mut self, request: &Request, tokenizer: &Tokenizer) -> Option<Event> {
        if std::mem::replace(&mut self.passed, true) {
            return None;
        }
        let (sum, count) = &self.states;
        if *count > 0 {
            return Some(Event::Embedding(sum.iter().map(|sum| (sum / *count as f64) as f32).collect()));
        }
        let text = request.echo.clone()?;
        let tokens = if matches!(request.reading, Reading::Logprobs(_)) {
            self.weighed(request, tokenizer)
        } else {
            Vec::new()
        };
        Some(Event::Text(Piece { parts: vec![Part::Text(text)], tokens }))
    }

    fn weighed(&mut self, request: &Request, tokenizer: &Tokenizer) -> Vec<Weighed> {
        let mut stream = tokenizer.stream();
        let mut known = std::mem::take(&mut self.known).into_iter();
        let weigh = |(at, token): (usize, &u32)| {
            let characters = stream.push(*token).chars().count();
            Weighed { token: *token, characters, logprobs: if at == 0 { None } else { known.next() } }
        };
        let mut tokens: Vec<Weighed> = request.prompt.iter().enumerate().map(weigh).collect();
        // The space that a vocabulary adds before the first word is no part of the text.
        let written = request.echo.as_ref().map_or(0, |text| text.chars().count());
        let surplus = tokens.iter().map(|token| token.characters).sum::<usize>().saturating_sub(written);
        if let Some(token) = tokens.iter_mut().find(|token| token.characters > 0) {
            token.characters = token.characters.saturating_sub(surplus);
        }
        tokens
    }
}
