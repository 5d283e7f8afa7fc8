//! Counter-examples that the model and the specification exchange.
//!
//! Checks that each counter-example of `lock-core/tests/model` in `proof/spec/exchange` is also one of the specification.

use std::fs;
use std::path::Path;

use crate::spec::config::read;
use crate::spec::tlc::{self, Outcome, Tlc, Until, places};

/// Checks the named rules, or all. Returns whether each counter-example is also one of the specification.
pub(super) fn run(rules: &[String]) -> Result<bool, String> {
    let (spec, target) = places();
    let folder = spec.join("exchange");
    let known = known(&folder)?;
    let tlc = tlc::find(false)?;
    let (mut right, mut of) = (0, 0);
    for rule in named(&known, rules)? {
        let told = read(&folder.join(format!("{rule}.txt")))?;
        let verdict = check(&tlc, &spec, &target.join("exchange").join(rule), rule, &told)?;
        of += 1;
        right += usize::from(verdict.is_ok());
        println!("{rule}: {}", verdict.unwrap_or_else(|why| why));
    }
    println!("figure: counter-examples of the model that are the specification's too: {right} of {of}");
    Ok(right == of)
}

/// The rules that have a counter-example in the folder.
pub(super) fn known(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", folder.display());
    let mut known = Vec::new();
    for file in fs::read_dir(folder).map_err(failed)? {
        let path = file.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == "txt") {
            known.extend(path.file_stem().and_then(|rule| Some(rule.to_str()?.to_owned())));
        }
    }
    known.sort();
    Ok(known)
}

/// The named rules, or all.
pub(super) fn named<'a>(known: &'a [String], rules: &[String]) -> Result<Vec<&'a String>, String> {
    if let Some(rule) = rules.iter().find(|rule| !known.contains(rule)) {
        return Err(format!("there is no counter-example without `{rule}`; there are those of {}", known.join(", ")));
    }
    Ok(known.iter().filter(|rule| rules.is_empty() || rules.contains(rule)).collect())
}

/// Returns TLC's verdict: a counter-example without the rule but not with it, or the first step that is not allowed.
fn check(tlc: &Tlc, spec: &Path, folder: &Path, rule: &str, told: &str) -> Result<Result<String, String>, String> {
    let without = look(tlc, spec, folder, rule, told, &format!("\"{rule}\""))?;
    if without.is_err() || look(tlc, spec, folder, rule, told, "")?.is_err() {
        return Ok(without);
    }
    Ok(Err("A COUNTER-EXAMPLE WITH ALL RULES".to_owned()))
}

fn look(
    tlc: &Tlc,
    spec: &Path,
    folder: &Path,
    rule: &str,
    told: &str,
    off: &str,
) -> Result<Result<String, String>, String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    for module in ["Lock.tla", "Exchange.tla"] {
        fs::copy(spec.join(module), folder.join(module)).map_err(failed)?;
    }
    let steps = told.lines().filter(|line| line.contains(" | ")).map(step).collect::<Option<Vec<_>>>();
    let steps =
        steps.filter(|steps| !steps.is_empty()).ok_or_else(|| format!("{rule}.txt has a step that cannot be read"))?;
    let module = format!("---- MODULE Steps ----\nLog == <<\n  {}\n>>\n====\n", steps.join(",\n  "));
    fs::write(folder.join("Steps.tla"), module).map_err(failed)?;
    // The model's word for the error is also the name of the claim.
    let claim = told.lines().next().and_then(|line| line.split_once(": ")).map(|(_, wrong)| wrong);
    let claim = claim.ok_or_else(|| format!("{rule}.txt does not say what goes wrong"))?;
    let constants: Vec<&str> = told.lines().filter(|line| line.contains(" = ")).collect();
    let config = format!(
        "SPECIFICATION ExchangeSpec\nINVARIANTS {claim}\nCHECK_DEADLOCK FALSE\nCONSTANTS\n{}\n\
         Limit = 9\nNatives = FALSE\nWindow = 0\nDeaf = {{}}\nMargin = 0\nDrift = 0\nDraws = 64\nLoses = TRUE\nRenews = TRUE\nWrites = FALSE\n\
         Faults = {{\"break\", \"crash\", \"flush\", \"promote\", \"withdraw\"}}\nTimes = 9\nEnds = FALSE\nOff = {{{off}}}\n",
        constants.join("\n")
    );
    let report = tlc.run(folder, "Exchange.tla", &config, &format!("exchange {rule}"), Until::default())?;
    Ok(match report.outcome {
        Outcome::CounterExample { .. } => {
            Ok(format!("its counter-example of {} steps is one of the specification", steps.len()))
        }
        _ => {
            let reached =
                report.said.lines().filter_map(|line| line.strip_prefix("<<\"step\", 1, ")?.strip_suffix(">>"));
            let reached = reached.filter_map(|step| step.parse::<usize>().ok()).max().unwrap_or(0);
            Err(match steps.get(reached) {
                Some(step) => format!("NOT A BEHAVIOUR: step {} is not allowed: {step}", reached + 1),
                None => "NOT A COUNTER-EXAMPLE: the claim holds at its end".to_owned(),
            })
        }
    })
}

/// `Names pN | who holds | who waits`.
fn step(line: &str) -> Option<String> {
    let mut parts = line.split('|').map(str::trim);
    let (names, process) = parts.next()?.split_once(' ')?;
    let claim = |text: &str| text.split_once('.').map(|(process, number)| format!("<<\"{process}\", {number}>>"));
    let claims = |text: &str| text.split_whitespace().map(claim).collect::<Option<Vec<_>>>();
    let (held, queue) = (claims(parts.next()?)?, claims(parts.next()?)?);
    let acts: Vec<String> = names.split(',').map(|name| format!("\"{name}\"")).collect();
    Some(format!(
        "[acts |-> {{{}}}, process |-> \"{process}\", held |-> {{{}}}, queue |-> <<{}>>]",
        acts.join(", "),
        held.join(", "),
        queue.join(", ")
    ))
}
