//! Models.

use std::time::Duration;

use ga10b_llm::gguf::Gguf;
use ga10b_llm::{Model, Tokenizer, embedded};
use rand::Rng;
use rand::rngs::StdRng;

use ga10b_tests::fuzz::mutate::damage;
use ga10b_tests::fuzz::target::{Case, Target};

/// GGUF files.
pub const GGUF: Target = Target {
    name: "gguf",
    about: "the embedded model with a damaged header: read, checked as a model, its tokenizer used",
    bound: Duration::from_secs(10),
    start,
};

fn start() -> Case {
    let model = embedded::model().expect("the embedded model is whole");
    // Keys and tensors' names are before the vocabulary; the tensors' table is after it.
    let header = embedded::STORIES.len() - usize::try_from(model.tensor_bytes()).unwrap_or(0);
    Box::new(move |rng: &mut StdRng| {
        let mut bytes = embedded::STORIES.to_vec();
        if rng.random_ratio(1, 2) {
            damage(rng, &mut bytes, 1024, 3);
        } else {
            damage(rng, &mut bytes, header, 32);
        }
        let Ok(gguf) = Gguf::from_bytes(bytes) else { return };
        for tensor in gguf.tensors() {
            let view = gguf.tensor(&tensor.name).expect("a tensor of the table");
            let _ = (view.row_len(), view.rows(), view.row_bytes());
        }
        if let Ok(tokenizer) = Tokenizer::from_gguf(&gguf)
            && let Ok(tokens) = tokenizer.encode("Once upon a time, \u{1f600} 12")
        {
            let _ = tokenizer.decode(&tokens);
            let _ = tokenizer.decode(&[rng.random(), 0, 1, 2]);
        }
        if let Ok(model) = Model::new(gguf) {
            let _ = (model.quantization(), model.name().map(str::len), model.tensor_bytes());
        }
    })
}
