//! The sale on servers of its own. `scripts/with-sentinel.sh` or `scripts/with-cluster.sh` starts them, and runs this
//! program again with their address.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

/// Holds the sale on such servers, and kills a master in the middle if requested.
pub(crate) fn hold_sale(servers: &str, failover: bool) -> Result<ExitCode> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../scripts/with-{servers}.sh"));
    let mut command = Command::new("sh");
    command.arg(&script).args(failover.then_some("--failover"));
    command.arg(env::current_exe().context("cannot find this program")?).args(others(env::args().skip(1)));
    let ended = command.status().with_context(|| format!("cannot run {}", script.display()))?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Leaves out the arguments that selected this mode.
fn others(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut follows = false;
    let is_other = |argument: &String| {
        let is_value = std::mem::replace(&mut follows, argument == "--store");
        !is_value && !follows && !argument.starts_with("--store=") && argument != "--failover"
    };
    arguments.filter(is_other).collect()
}

#[cfg(test)]
mod tests {
    use super::others;

    #[test]
    fn the_second_run_is_not_asked_for_servers() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for text in
            ["--store sentinel --orders=5 --failover", "--orders=5 --store=sentinel", "--failover --store x --orders=5"]
        {
            assert_eq!(others(words(text).into_iter()), ["--orders=5"], "{text}");
        }
    }
}
