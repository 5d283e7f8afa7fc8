//! Completion scripts, man pages, and what a build without options can do.

use lock_testing::limit;
use std::process::Command;

use crate::program::lockctl_at;

#[test]
#[limit]
fn completions_know_every_command_and_bash_takes_them() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = lockctl_at("", &["completions", shell]);
        ended.assert_code(0);
        for word in ["list", "release", "run", "expect-value", "on-busy", "pass-url"] {
            assert!(ended.stdout.contains(word), "{word} in {shell}");
        }
    }
    let script = lockctl_at("", &["completions", "bash"]).stdout;
    let typed = "COMP_WORDS=(lockctl sh); COMP_CWORD=1; _lockctl lockctl sh lockctl; echo \"${COMPREPLY[*]}\"";
    let output = Command::new("bash").args(["-c", &format!("{script}\n{typed}")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "show", "{output:?}");
}

#[test]
#[limit]
fn each_command_has_a_man_page() {
    let directory = tempfile();
    lockctl_at("", &["man", "--out", directory.to_str().unwrap()]).assert_code(0);
    for command in ["", "-list", "-show", "-why", "-waiters", "-watch", "-release", "-run"] {
        let page = std::fs::read_to_string(directory.join(format!("lockctl{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let run = std::fs::read_to_string(directory.join("lockctl-run.1")).unwrap();
    assert!(run.contains("LOCK_TOKEN") && run.contains("busy"), "{run}");
    std::fs::remove_dir_all(&directory).unwrap();
    let page = lockctl_at("", &["man"]).stdout;
    assert!(page.contains("lockctl\\-run(1)"), "{page}");
}

fn tempfile() -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("lockctl-man-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// Managed services need TLS, so `cargo install lockctl` has it.
#[test]
#[limit]
fn a_build_without_options_has_tls() {
    let manifest = include_str!("../../Cargo.toml");
    let default = manifest.lines().find(|line| line.starts_with("default = ")).unwrap();
    assert!(default.contains("\"tls\"") && default.contains("\"postgres\""), "{default}");
}
