//! The first hour with a machine: numbered steps from the nodes of the driver to a language model, each of
//! which rests on those before it.
//!
//! [`plan`] has the claim and the remedy of each step; [`steps`] runs one against a [`Rig`](rig::Rig), which
//! holds the driver, real or software; [`outcome`] is the result; [`bundle`] packs it into one file and reads
//! such a file again. The `nvdiag` binary runs each step in a process of its own.
//!
//! The steps with a language model, and figures of one, are those of `llm-demo` as a program
//! ([`llm_demo`]), where it is installed.
//!
//! [`settings`] is the table of settings that a board works with, tried one by one after the steps.
//!
//! Steps 2 to 10 send requests to nvgpu themselves, so that they show which of them a machine answers in
//! another way. The others go through `hcq`.
//!
//! # Layers
//! ```text
//! file   bundle figures  # the file that is left, and the figures in it
//! run    report steps    # the steps, and what came of them
//! plan   plan rig        # which steps there are, and what they work with
//! parts  client kernels llm_demo outcome process settings  # requests, processes, outcomes
//! ```

pub mod bundle;
mod client;
pub mod figures;
mod kernels;
pub mod llm_demo;
pub mod outcome;
pub mod plan;
pub mod process;
pub mod report;
pub mod rig;
pub mod settings;
pub mod steps;
