//! The examples, as a user compiles and runs them.

use std::path::Path;
use std::process::Command;

use crate::installed::{SANITIZERS, compile, has, on_sim, prefix, succeed, text_of, under_valgrind};

/// Each example with the beginning and the end of what it prints, which is what the Rust one beside it prints.
const EXAMPLES: [(&str, &str, &str); 6] = [
    ("01_vecadd", "ga10b (sim)\n", "\n1000 sums are right\n"),
    ("02_graph_replay", "", "11 replays of 2 launches: every element is 122\n"),
    ("03_two_queues", "", "131072 floats doubled in 8 parts\n"),
    ("04_ptxgen", "", "1000 floats halved\n"),
    ("05_fault", "the GPU stopped: access to unmapped memory at 0x", "LDG.E R2, [R2.64] [notifier 31]\n"),
    ("06_persistent", "32 blocks on 16 SMs\n", "100 generations of 4096 cells in one launch\n"),
];

const LOOP: &str = "\
50 cycles: the state is 762.5
HCQ_ERROR_LAUNCH_ARGUMENT_COUNT: axpy takes 4 arguments, of 8, 8, 4, 4 bytes; 2 were given
  hint: pass every parameter, in order, with its own width; arguments are counted from 0
";

fn source(name: &str) -> String {
    format!("examples/{name}.c")
}

#[track_caller]
fn check(text: &str, name: &str, begin: &str, end: &str) {
    assert!(text.starts_with(begin) && text.ends_with(end), "{name}: {text}");
}

#[test]
fn they_run_alone_and_under_valgrind() {
    let valgrind = has("valgrind");
    for (name, begin, end) in EXAMPLES {
        let program = compile(&source(name), name, &[]);
        check(&text_of(&mut on_sim(&program)), name, begin, end);
        if valgrind {
            check(&under_valgrind(&program), name, begin, end);
        }
    }
}

#[test]
fn they_run_with_sanitizers() {
    for (name, begin, end) in EXAMPLES {
        let program = compile(&source(name), &format!("{name}-sanitized"), SANITIZERS);
        check(&text_of(&mut on_sim(program)), name, begin, end);
    }
}

#[test]
fn they_run_on_every_sm() {
    for (name, ..) in EXAMPLES.iter().filter(|(name, ..)| *name != "05_fault") {
        let program = compile(&source(name), &format!("{name}-sms"), &[]);
        for arch in ["sm_80", "sm_86", "sm_89", "sm_90"] {
            succeed(on_sim(&program).env("NVGPU_SIM_ARCH", arch));
        }
    }
}

#[test]
fn the_loop_in_cpp_runs() {
    if !has("c++") {
        return;
    }
    let source = "examples/07_control_loop.cpp";
    assert_eq!(text_of(&mut on_sim(compile(source, "loop", &[]))), LOOP);
    assert_eq!(text_of(&mut on_sim(compile(source, "loop-sanitized", SANITIZERS))), LOOP);
    if has("valgrind") {
        assert_eq!(under_valgrind(&prefix().join("loop")), LOOP);
    }
}

#[test]
fn the_latency_of_a_loop_is_told_and_what_it_does_not_take_is_refused() {
    let source = "examples/08_latency.c";
    for program in [compile(source, "latency", &[]), compile(source, "latency-sanitized", SANITIZERS)] {
        for poll in [&[][..], &["poll"]] {
            let text = text_of(on_sim(&program).args(["50", "1"]).args(poll));
            let counts: Vec<u32> = text.split([' ', '\n']).filter_map(|word| word.parse().ok()).collect();
            assert_eq!(counts[1] + counts[2], 50, "{text}");
            let rows: Vec<&str> = text.lines().skip(1).filter_map(|row| row.split(" min ").next()).collect();
            assert_eq!(
                rows.iter().map(|row| row.trim()).collect::<Vec<_>>(),
                ["wake-up", "launch + wait + read", "response"]
            );
        }
        for words in
            [&["50"][..], &["0", "1"], &["50", "1", "sleep"], &["50", "x"], &["50", "1", "poll", "1"]]
        {
            assert_eq!(on_sim(&program).args(words).output().unwrap().status.code(), Some(2), "{words:?}");
        }
    }
}

/// Compiles an example with what `flags` say, in place of the folders that other tests name.
fn built_by(flags: &str, name: &str) -> std::path::PathBuf {
    let program = prefix().join(name);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    compiler.arg(folder.join(source("01_vecadd"))).arg("-o").arg(&program);
    succeed(compiler.args(flags.split_whitespace()));
    program
}

#[test]
fn pkg_config_gives_the_flags_of_the_shared_library_and_of_the_archive() {
    if !has("pkg-config") {
        return;
    }
    let flags = |more: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(["--cflags", "--libs"]);
        text_of(command.args(more).arg("hcq"))
    };
    // From the repository's root, where the examples look for kernels.
    let run = |program: &Path| {
        let mut command = on_sim(program);
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        text_of(command.env("LD_LIBRARY_PATH", prefix().join("lib")))
    };
    let shared = built_by(&flags(&[]), "by-pkg-config");
    assert_eq!(run(&shared), "ga10b (sim)\n1000 sums are right\n");
    let names = text_of(Command::new("readelf").arg("-d").arg(&shared));
    assert!(names.contains("[libhcq.so.0]"), "{names}");
    let archive = flags(&["--static"]).replace("-lhcq ", "-l:libhcq.a ");
    let archive = built_by(&archive, "by-pkg-config-static");
    assert_eq!(run(&archive), "ga10b (sim)\n1000 sums are right\n");
    let names = text_of(Command::new("readelf").arg("-d").arg(&archive));
    assert!(!names.contains("libhcq"), "{names}");
}

const CMAKE: &str = "\
cmake_minimum_required(VERSION 3.16)
project(user C)
find_package(hcq 0.1 REQUIRED)
foreach(kind hcq static)
  add_executable(with_${kind} ${EXAMPLE})
  target_link_libraries(with_${kind} PRIVATE hcq::${kind})
endforeach()
";

#[test]
fn cmake_finds_the_package() {
    if !has("cmake") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("CMakeLists.txt"), CMAKE).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join(source("01_vecadd"));
    let mut configure = Command::new("cmake");
    configure.current_dir(&folder).args(["-S", ".", "-B", "build"]);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()));
    succeed(configure.arg(format!("-DEXAMPLE={}", example.display())));
    succeed(Command::new("cmake").current_dir(&folder).args(["--build", "build"]));
    for kind in ["hcq", "static"] {
        let mut command = on_sim(folder.path().join("build").join(format!("with_{kind}")));
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        assert_eq!(text_of(&mut command), "ga10b (sim)\n1000 sums are right\n");
    }
}

#[test]
fn every_symbol_of_the_shared_library_has_its_version() {
    let mut nm = Command::new("nm");
    let symbols = text_of(
        nm.args(["-D", "--defined-only", "--with-symbol-versions"]).arg(prefix().join("lib/libhcq.so")),
    );
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let header = std::fs::read_to_string(prefix().join("include/hcq.h")).unwrap();
    for name in names.iter().filter(|name| **name != "HCQ_0") {
        let function = name.strip_suffix("@@HCQ_0").unwrap_or_else(|| panic!("{name}"));
        assert!(header.contains(&format!("{function}(")), "{function} is not in the header");
    }
    let declared = header.matches("hcq_status hcq_").count() + 3;
    assert_eq!(names.len(), declared + 1, "the functions of the header and the version");
}
