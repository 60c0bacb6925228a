//! The `llm-demo` program.

fn main() {}
