//! Programs that do what they should not, and what they may.

use crate::installed::{SANITIZERS, compile, folder, has, on_sim, text_of, under_valgrind};

fn run(file: &str, wanted: &str) {
    let (name, source) = (file.split('.').next().unwrap(), format!("tests/programs/{file}"));
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
    run("misuse.c", "every misuse was refused by its name\n");
}

#[test]
fn threads_share_a_device_and_free_what_others_use() {
    run("threads.c", "4 threads, 0 mistakes\n");
}

#[test]
fn a_thread_sanitizer_that_is_told_of_the_library_finds_nothing() {
    let program = compile("tests/programs/threads.c", "threads-tsan", &["-fsanitize=thread"]);
    let told = format!("suppressions={}", folder().join("examples/tsan.supp").display());
    let mut command = on_sim(program);
    assert_eq!(text_of(command.env("TSAN_OPTIONS", told)), "4 threads, 0 mistakes\n");
}

#[test]
fn owners_in_cpp_may_be_empty_and_take_containers() {
    if !has("c++") {
        return;
    }
    run("owners.cpp", "0 mistakes\n");
    let newer = compile("tests/programs/owners.cpp", "owners-20", &["-std=c++20"]);
    assert_eq!(text_of(&mut on_sim(newer)), "0 mistakes\n");
}
