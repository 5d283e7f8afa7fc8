//! Shows what goes wrong in the model of the protocol without one of its rules.

use std::path::Path;
use std::process::Command;

/// The test of the model that prints the story, and the variable that names the rule.
const STORY: &str = "story::a_rule_that_is_left_out_is_told";
const ASKED: &str = "LOCK_MODEL_WITHOUT";

/// Returns the story, or an error that lists the rules.
pub(crate) fn without(rule: &str) -> Result<String, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--locked", "--quiet", "-p", "lock-proof", "--test", "model", "--"]);
    cargo.args(["--exact", "--nocapture", STORY]).env(ASKED, rule).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = cargo.output().map_err(|error| format!("cargo cannot be run, which builds the model: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let story = cut(&said).ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        format!("the model in {} tells nothing: {}", Path::new("lab/proof/tests/model").display(), why.trim())
    })?;
    if story.starts_with("Without ") { Ok(story.to_owned()) } else { Err(story.to_owned()) }
}

/// Cuts the story out of the output of the test.
fn cut(said: &str) -> Option<&str> {
    let (_, after) = said.split_once("=== story ===\n")?;
    Some(after.split_once("=== end ===")?.0)
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn the_story_is_cut_out_of_what_a_test_says() {
        assert_eq!(cut("running 1 test\n=== story ===\nWithout it.\n=== end ===\n."), Some("Without it.\n"));
        assert_eq!((cut("running 0 tests\n"), cut("=== story ===\nWithout")), (None, None));
    }
}
