use crate::program::run;
use lock_core::testing::limit;

/// Runs the examples that end by themselves, on one store.
pub(crate) fn run_all(store: &[(&str, &str)]) {
    let quickstart = run(env!("CARGO_BIN_EXE_quickstart"), &[], store);
    quickstart.assert_success();
    let line = |text: &str| quickstart.stdout.lines().position(|line| line.contains(text)).unwrap();
    assert_eq!(quickstart.stdout.matches("charging user 42").count(), 2, "{quickstart:#?}");
    assert!(line("charged user 42") < quickstart.stdout.lines().count() - 4, "{quickstart:#?}");
    let steps: Vec<&str> =
        quickstart.stdout.lines().filter(|line| line.contains("user 42") && line.starts_with("charg")).collect();
    assert_eq!(steps, ["charging user 42 ...", "charged user 42", "charging user 42 ...", "charged user 42"]);

    let guard_api = run(env!("CARGO_BIN_EXE_guard_api"), &[], store);
    guard_api.assert_success();
    for step in ["acquired", "held by", "found it taken", "refused", "extended", "released: Released", "wrote 12"] {
        assert!(guard_api.stdout.contains(step), "{step:?} is not in {guard_api:#?}");
    }

    let fencing = run(env!("CARGO_BIN_EXE_fencing"), &[], store);
    fencing.assert_success();
    for step in ["the second holder was here", "refused: fencing token", "ensure_held agrees"] {
        assert!(fencing.stdout.contains(step), "{step:?} is not in {fencing:#?}");
    }
    assert!(!fencing.stdout.contains("wrote \"the first holder again"), "{fencing:#?}");
}

#[test]
#[limit]
fn the_small_examples_run_in_memory() {
    run_all(&[]);
}

#[test]
#[limit]
fn a_store_that_is_away_is_an_error_that_says_so() {
    for program in [env!("CARGO_BIN_EXE_quickstart"), env!("CARGO_BIN_EXE_guard_api"), env!("CARGO_BIN_EXE_fencing")] {
        // Port 1 does not have a listener.
        let ended = run(program, &[], &[("LOCK_URL", "redis://127.0.0.1:1")]);
        ended.assert_failure(1, "127.0.0.1:1");
    }
}

/// Instances with locks of their own would exclude nobody, and look as if they did.
#[test]
#[limit]
fn what_runs_in_a_fleet_does_not_start_without_a_store() {
    for program in [env!("CARGO_BIN_EXE_nightly_job"), env!("CARGO_BIN_EXE_web_service")] {
        run(program, &[], &[]).assert_failure(1, "LOCK_URL is not set");
    }
}
