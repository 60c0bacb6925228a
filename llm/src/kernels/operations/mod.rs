//! One kernel per operation of a decode step, with activations in single precision: the slow path that the
//! others are compared with, and the last layer of each prompt.

pub mod attention;
pub mod matvec;
pub mod norm;
pub mod quantized_attention;
pub mod rope;
pub mod striped;
pub mod token;
