//! Programs that do what they should not, and what they may.

use crate::installed::{SANITIZERS, compile, has, on_sim, text_of, under_valgrind};

fn run(name: &str, wanted: &str) {
    let source = format!("tests/programs/{name}.c");
    let program = compile(&source, name, &[]);
    assert_eq!(text_of(&mut on_sim(&program)), wanted);
    let sanitized = compile(&source, &format!("{name}-sanitized"), SANITIZERS);
    assert_eq!(text_of(&mut on_sim(sanitized)), wanted);
    if has("valgrind") {
        assert_eq!(under_valgrind(&program), wanted);
    }
}

#[test]
fn each_misuse_has_a_status_and_the_process_lives() {
    run("misuse", "every misuse was refused by its name\n");
}

#[test]
fn threads_share_a_device_and_free_what_others_use() {
    run("threads", "4 threads, 0 mistakes\n");
}
