//! Every option of the attribute, declared once: its name, its type and reader, its row in the docs, and the options
//! that it excludes.

use syn::{Error, Expr, Ident, LitStr, Path, Result};

use super::values::{
    Action, DurabilityArg, KeysArg, MIN_HOLD_ON, MinHoldOn, ModeArg, ON_BUSY, ON_ERROR, ON_LOST, ON_REFUSED,
    RUN_ONCE_EVEN_IF, RenewArg, Value, WaitArg, action, crate_path, durability, duration, expression, flag, guard_name,
    key, keys, keyword, label, map_err, mode, renew, stripes, wait,
};
use super::{Arg, Name, clash};
use crate::duration::DurationArg;
use crate::template::Template;

/// Declares options in the order in which people should read them.
macro_rules! options {
    ($(
        $name:literal: $field:ident = $reader:path $([$words:path])? => $type:ty,
        [$values:literal, $default:literal, $meaning:literal]
        $(, excludes $other:ident $(if $applies:path)?: $sentence:literal)*;
    )*) => {
        /// Every option name.
        pub(crate) const KNOWN: &[&str] = &[$($name),*];

        /// The written options. An option that was not written is `None`.
        #[derive(Default)]
        pub(crate) struct Options {
            $(#[doc = $meaning] pub(crate) $field: Option<Arg<$type>>,)*
        }

        impl Options {
            /// Reads one option, or reports that its name is unknown.
            pub(super) fn read(&mut self, name: Name, value: Value) -> Result<()> {
                match value.name.as_str() {
                    $($name => super::fill(&mut self.$field, name, $reader(value $(, $words)?)),)*
                    _ => Err(super::unknown(&name.ident)),
                }
            }

            /// Reports options that exclude each other.
            pub(super) fn conflicts(&self) -> Vec<Error> {
                let pairs = [$($(
                    clash(&self.$field, self.$other.as_ref()$(.filter(|other| $applies(&other.value)))?, $sentence),
                )*)*];
                pairs.into_iter().flatten().collect()
            }
        }

        /// The table of all options, for the docs.
        macro_rules! options_table {
            () => {
                concat!(
                    "| option | value | default | meaning |\n|---|---|---|---|\n",
                    $("| `", $name, "` | ", $values, " | ", $default, " | ", $meaning, " |\n",)*
                )
            };
        }
    };
}

options! {
    "key": key = key => Template,
        ["template", "required", "what is locked"],
        excludes keys: "key and keys exclude each other; put every key into keys";
    "keys": keys = keys => KeysArg,
        ["`[template, …]`, or an iterator of keys", "–", "several keys, sorted, without duplicates, all or nothing"];
    "mode": mode = mode => ModeArg,
        ["`\"read\"`, `\"write\"`", "`\"write\"`", "`\"read\"` lets other readers of the key in at the same time, and no writer"],
        excludes keys: "several keys at once are locked exclusively; drop mode, or lock one key";
    "permits": permits = expression => Expr,
        ["number (`u32`)", "–", "a semaphore: so many calls of the whole fleet are inside at once"],
        excludes mode: "a semaphore has no readers and writers; drop mode, or drop permits",
        excludes keys: "a semaphore has one key; write key = …";
    "weight": weight = expression => Expr,
        ["number (`u32`)", "1", "how many of the permits one call takes"];
    "stripes": stripes = stripes => u32,
        ["2 to 4096", "–", "spreads the keys over this many locks, named by the text before the first `<`; \
         `LockManager::striped` has the same ones"],
        excludes keys: "stripes spread one key over several locks, and keys names several; drop one of them";
    "ttl": ttl = duration => DurationArg,
        ["duration", "the manager's (30 s)", "the lease: how long others wait after this process died"];
    "wait": wait = wait => WaitArg,
        ["duration, `\"none\"`, `\"forever\"`", "the manager's (5 s)", "how long to wait for a lock that is taken"];
    "on_busy": on_busy = action[ON_BUSY] => Action,
        ["`\"error\"`, `\"skip\"`, a value, `\\|busy\\| value`", "`\"error\"`",
         "what a call returns that did not get the lock in time"];
    "on_error": on_error = action[ON_ERROR] => Action,
        ["`\"error\"`, `\"skip\"`, `\"run_unlocked\"`, a value, `\\|error\\| value`", "`\"error\"`",
         "… that could not get it for another reason"];
    "on_lost": on_lost = action[ON_LOST] => Action,
        ["`\"cancel\"`, `\"error\"`, `\"skip\"`, `\"ignore\"`, a value, `\\|lost\\| value`",
         "`\"cancel\"`; `\"error\"` without `async`", "… that lost it while it ran"];
    "on_refused": on_refused = action[ON_REFUSED] => Action,
        ["`\"skip\"`, a value, `\\|error\\| value`", "–", "sets those of `on_busy`, `on_error` and `on_lost` that are not set"];
    "map_err": map_err = map_err => Expr,
        ["function or closure", "`From<LockError>`", "makes the error of the return type"];
    "renew": renew = renew => RenewArg,
        ["`true`, `false`, duration", "`true` (a third of the ttl)", "the watchdog"];
    "max_hold": max_hold = duration => DurationArg,
        ["duration", "none", "the lock is given up after this long, even if the body hangs"],
        excludes renew if RenewArg::is_off:
            "max_hold ends the renewal, but renew = false never renews; the lock ends with its ttl";
    "min_hold": min_hold = duration => DurationArg,
        ["duration", "zero", "the key stays taken at least this long, even if the body is quick; it may be longer than the ttl"];
    "min_hold_on": min_hold_on = keyword[MIN_HOLD_ON] => MinHoldOn,
        ["`\"end\"`, `\"ok\"`", "`\"end\"`", "after which end of the body: `\"ok\"` frees the key at once after an error or a panic"];
    "durability": durability = durability => DurabilityArg,
        ["`\"acks=1\"`, `\"acks=all\"`, `\"fsync=local\"`, `\"fsync=1\"`, `\"master\"`", "the manager's, or the URL's (`\"master\"`)",
         "where the lock must have arrived before it counts: replicas or disks, so that a failover does not lose it"];
    "at_most_every": at_most_every = duration => DurationArg,
        ["duration", "–", "a job that runs at most once in this time, on one of many instances: taken or done is skipped"],
        excludes once_every: "once_every is for a schedule with this period, and at_most_every for starts at any time; drop one of them",
        excludes once_at: "at_most_every counts from the start of a run, and once_at names the run; drop one of them";
    "once_every": once_every = duration => DurationArg,
        ["duration", "–", "a job that a schedule with this period starts on many instances: it runs on one of them for each tick, early or late \
         by up to a tenth"],
        excludes once_at: "once_every counts from the start of a run, and once_at names the run; drop one of them";
    "once_at": once_at = expression => Expr,
        ["expression of type `SystemTime`", "–", "a job that runs once for the time of its schedule, however late it starts"];
    "once_for": once_for = expression => Expr,
        ["expression of a text", "–", "work that the whole fleet does once for this version: one call does it, the \
            others wait, and later calls skip it; it counts as done unless the body returns `Err`"],
        excludes keys: "work that is done once for a version has one lock; write key = …",
        excludes mode: "work that is done once for a version runs in one place; drop mode",
        excludes permits: "work that is done once for a version runs in one place; drop permits",
        excludes stripes: "ids that share a stripe would share what is done; drop stripes",
        excludes at_most_every: "once_for runs its work once for ever, and at_most_every repeats it; drop one of them",
        excludes once_every: "once_for runs its work once for ever, and once_every repeats it; drop one of them",
        excludes once_at: "once_for names its work by a version, and once_at by a time; drop one of them",
        excludes when: "without the lock it is unknown whether the work is done; drop when",
        excludes on_error if Action::runs_unlocked: "without the lock it is unknown whether the work is done; drop \
            on_error",
        excludes on_lost if Action::ignores: "work that ended without the lock does not count as done; drop on_lost";
    "retry_failed": retry_failed = flag => bool,
        ["flag", "off", "a job that returned `Err` or panicked has not run"];
    "run_once_even_if": run_once_even_if = keyword[RUN_ONCE_EVEN_IF] => (),
        ["`\"crashed\"`", "–", "a job whose process died has run, too"];
    "reentrant": reentrant = flag => bool,
        ["flag", "off", "a nested call with the same key shares the lock instead of failing"];
    "guard": guard = guard_name => Ident,
        ["name", "–", "names the `&LockGuard` in the body: `token()`, `ensure_held()`, `extend()`"],
        excludes when: "guard names the lock, but with when = … there may be none; drop one of them",
        excludes on_error if Action::runs_unlocked:
            "guard names the lock, but on_error = \"run_unlocked\" runs without one; drop one of them";
    "client": client = expression => Expr,
        ["expression", "see below", "the manager, such as `self.locks`"];
    "when": when = expression => Expr,
        ["expression of type `bool`", "`true`", "whether to lock at all"];
    "label": label = label => LitStr,
        ["string", "the key's template", "the metric label"];
    "stuck_after": stuck_after = duration => DurationArg,
        ["duration", "the manager's", "the age at which alerts call a hold stuck"];
    "docs": docs = flag => bool,
        ["`true`, `false`", "`true`", "whether key, lease and ready queries are added to the function's docs"];
    "crate": krate = crate_path => Path,
        ["path", "`::lock_core`", "where `lock-core` is, if you renamed it"];
}

pub(crate) use options_table as table_of_options;
