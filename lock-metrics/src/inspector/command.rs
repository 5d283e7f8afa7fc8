//! A command under `lockctl run`. It exports no metrics, so its call site is the only source of information.

use std::time::Duration;

const PREFIX: &str = "lockctl run ";
const THRESHOLD: &str = " (stuck after ";

/// The data in the call site of a holder that is `lockctl run`.
pub(super) struct Command {
    /// The age at which it counts as stuck, if the call site gives one.
    pub(super) stuck_after: Option<Duration>,
}

impl Command {
    pub(super) fn of(site: &str) -> Option<Self> {
        let program = site.strip_prefix(PREFIX)?;
        let seconds = program.rsplit_once(THRESHOLD).and_then(|(_, rest)| rest.strip_suffix("s)")?.parse().ok());
        Some(Self { stuck_after: seconds.map(Duration::from_secs) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Command;

    #[test]
    fn a_command_says_when_it_is_stuck_or_nothing() {
        let after = |site| Command::of(site).map(|command| command.stuck_after);
        assert_eq!(after("lockctl run backup.sh"), Some(None));
        assert_eq!(after("lockctl run backup.sh (stuck after 7200s)"), Some(Some(Duration::from_secs(7200))));
        assert_eq!(after("lockctl run odd (stuck after ever)"), Some(None));
        assert_eq!(after("shop::charge"), None);
    }
}
