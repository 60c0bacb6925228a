//! Runs the device suite on the device that `HCQ_DEVICE` names; the software ga10b when it is unset.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let mut args = Arguments::from_args();
    let on_sim = ga10b_tests::on_sim();
    if !on_sim {
        // One GPU: a test that loses its device must not take another test's with it.
        args.test_threads = Some(1);
    }
    let trials = ga10b_tests::suite()
        .into_iter()
        .map(|test| {
            Trial::test(test.name, move || (test.run)().map_err(|e| Failed::from(format!("{e:?}"))))
                .with_ignored_flag(test.sim_only && !on_sim)
        })
        .collect();
    libtest_mimic::run(&args, trials).exit_code()
}
