//! The way back: for each rule, the shortest counter-example that TLC finds without it. `lock-core/tests/model` replays each.
//!
//! `proof/spec/exchange/back` has a file for each rule: the claim, the constants, and the steps as TLC finds them.
//! `LOCK_TEST_WRITE=1` writes the steps.

use std::fs;
use std::path::Path;

use crate::spec::config::read;
use crate::spec::exchange::{known, named};
use crate::spec::story::Moment;
use crate::spec::tlc::{self, Outcome, Tlc, Until, places};

/// Steps that the files of both directions leave out: the end of a claim is sent again, and a replica catches up.
const UNTOLD: [&str; 2] = ["EndAgain", "Replicate"];

/// Checks the named rules, or all. Returns whether each file is equal to what TLC finds.
pub(super) fn run(rules: &[String]) -> Result<bool, String> {
    let (spec, target) = places();
    let folder = spec.join("exchange/back");
    let known = known(&folder)?;
    let tlc = tlc::find(false)?;
    let (mut right, mut of) = (0, 0);
    for rule in named(&known, rules)? {
        let file = folder.join(format!("{rule}.txt"));
        let kept = read(&file)?;
        let (text, states) = look(&tlc, &spec, &target.join("exchange").join(format!("back-{rule}")), rule, &kept)?;
        of += 1;
        let verdict = if std::env::var_os("LOCK_TEST_WRITE").is_some() {
            fs::write(&file, &text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
            right += 1;
            "written"
        } else if text == kept {
            right += 1;
            "as it is kept"
        } else {
            "NOT AS IT IS KEPT; LOCK_TEST_WRITE=1 writes it"
        };
        let steps = text.lines().filter(|line| line.contains(" | ")).count();
        println!("{rule}: {steps} steps, {states} states, {verdict}");
    }
    println!("figure: counter-examples of the specification that are as the model is given them: {right} of {of}");
    Ok(right == of)
}

/// Returns the expected file, and how many states TLC checked.
fn look(tlc: &Tlc, spec: &Path, folder: &Path, rule: &str, kept: &str) -> Result<(String, String), String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    fs::copy(spec.join("Lock.tla"), folder.join("Lock.tla")).map_err(failed)?;
    let head: Vec<&str> = kept.lines().take_while(|line| !line.contains(" | ")).collect();
    let claim = head.first().and_then(|line| line.split_once(": ")).map(|(_, wrong)| claim(wrong)).transpose()?;
    let claim = claim.ok_or_else(|| format!("{rule}.txt does not say what goes wrong"))?;
    let constants = head[1..].join("\n");
    let config = format!(
        "SPECIFICATION Spec\nINVARIANTS {claim}\nCHECK_DEADLOCK FALSE\nSYMMETRY Symmetry\nCONSTANTS\n{constants}\n\
         Natives = FALSE\nWindow = 0\nDeaf = {{}}\nMargin = 0\nDrift = 0\nDraws = 64\nLoses = TRUE\nRenews = FALSE\n\
         Writes = FALSE\nTimes = 1\nEnds = FALSE\nOff = {{\"{rule}\"}}\n"
    );
    let report = tlc.run(folder, "Lock.tla", &config, &format!("back {rule}"), Until::default())?;
    let Outcome::CounterExample { trace, .. } = report.outcome else {
        return Err(format!("the specification has no counter-example without {rule} within the bounds of its file"));
    };
    let mut lines: Vec<String> = head.iter().map(|line| (*line).to_owned()).collect();
    for pair in trace.windows(2).filter(|pair| !UNTOLD.contains(&&*pair[1].action)) {
        lines.push(line(&pair[0], &pair[1]));
    }
    Ok((lines.join("\n") + "\n", report.states))
}

/// The claim of the specification for each kind of error in the model.
fn claim(wrong: &str) -> Result<&'static str, String> {
    match wrong {
        "Exclusion" | "LateEntry" | "OverLimit" => Ok("NoTwoHolders"),
        "TokenOrder" => Ok("TokensGrow"),
        "OrphanKey" => Ok("ReleasedStaysReleased"),
        _ => Err(format!("the specification does not claim that there is no {wrong}")),
    }
}

/// `Name pN | who holds | who waits`, where `pN` is the process whose state changed.
fn line(before: &Moment, after: &Moment) -> String {
    let process = after.changed(before).into_iter().find_map(|name| {
        let (variable, rest) = name.split_once('.')?;
        let is = ["proc", "wire", "back", "stray"].contains(&variable);
        is.then(|| rest.split('.').next().unwrap_or(rest).to_owned())
    });
    // A failover and a tick belong to no process, and may change the state of several.
    let nobody = ["Tick", "Expire", "Flush", "Restart", "Promote"].contains(&&*after.action);
    let process = process.filter(|_| !nobody).unwrap_or_else(|| "p0".to_owned());
    let claims = |name: &str| {
        let value = after.value(name).unwrap_or_default();
        let claims = value.split("claim |-> <<").skip(1).filter_map(|rest| rest.split_once(">>"));
        claims.map(|(claim, _)| claim.replace(", ", ".")).collect::<Vec<_>>().join(" ")
    };
    format!("{} {process} | {} | {}", after.action, claims("server.held"), claims("server.queue"))
}
