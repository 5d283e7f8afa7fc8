//! The links between specification and code use the names of both: Trace.tla, Exchange.tla, and the code that writes their steps.

use std::collections::BTreeSet;
use std::fs;

use lock_testing::limit;

use crate::crate_file;
use crate::spec::{actions, read, table};

type Names = BTreeSet<String>;

/// The texts between quotes, of which each names one thing or several between commas.
fn quoted(text: &str) -> impl Iterator<Item = String> {
    let code =
        text.lines().filter(|line| !line.trim_start().starts_with("//") && !line.trim_start().starts_with("\\*"));
    let quoted = code.flat_map(|line| line.split('"').skip(1).step_by(2).collect::<Vec<_>>()).collect::<Vec<_>>();
    quoted
        .into_iter()
        .flat_map(|text| text.split(',').collect::<Vec<_>>())
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

/// As actions are called: `Acquire`, `HandOff`.
fn is_action(name: &str) -> bool {
    let letters = name.chars().all(char::is_alphabetic);
    letters && name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

/// The names that a module takes for actions, each of which stands for the action of that name.
fn named(module: &str) -> Names {
    let (_, cases) = module.split_once("Named(name, p) ==").unwrap();
    let cases = cases.split("\n\n").next().unwrap();
    let pairs = cases.split("name = \"").skip(1).map(|case| case.split_once("\" -> ").unwrap());
    let pairs = pairs.inspect(|(name, action)| {
        let action = action.split(|sign: char| !sign.is_alphabetic()).next().unwrap();
        assert_eq!(*name, action);
    });
    pairs.map(|(name, _)| name.to_owned()).collect()
}

/// The declarations of a module between two words.
fn declared(module: &str) -> Names {
    let lines = module.lines().skip_while(|line| *line != "CONSTANTS").skip(1).take_while(|line| !line.is_empty());
    let names = lines.flat_map(|line| line.split("\\*").next().unwrap().split(',').collect::<Vec<_>>());
    names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

/// The names before ` = ` at the beginning of a line. In the text, `\n` may be written so.
fn assigned(text: &str) -> Names {
    let lines = text.split("\\n").flat_map(str::lines).map(|line| line.trim().trim_start_matches('"'));
    let names = lines.filter_map(|line| line.split_once(" = ").map(|(name, _)| name.to_owned()));
    names.filter(|name| is_action(name)).collect()
}

/// The fields of a step that a module looks at, and those that are written.
fn fields(module: &str, writer: &str) -> [Names; 2] {
    let name = |text: &str| text.split(|sign: char| !sign.is_alphabetic()).next().unwrap_or_default().to_owned();
    let code = module.lines().filter(|line| !line.starts_with("(*")).collect::<Vec<_>>().join("\n");
    let read = code.split("E.").skip(1).map(name).filter(|name| name.starts_with(char::is_lowercase));
    let written = writer
        .split(" |-> ")
        .map(|before| before.rsplit(|sign: char| !sign.is_alphabetic()).next().unwrap_or_default().to_owned());
    let written = written.filter(|name| !name.is_empty() && *name != "d");
    [read.collect(), written.collect()]
}

#[test]
#[limit]
fn each_name_of_a_step_is_an_action_of_the_specification() {
    let lock = actions(&read("lab/proof/spec/Lock.tla"));
    let trace = read("lab/proof/spec/Trace.tla");
    let names: Names = quoted(&trace).filter(|name| is_action(name)).collect();
    let unknown: Vec<&String> = names.difference(&lock).filter(|name| *name != "Elsewhere").collect();
    assert!(named(&trace).is_subset(&lock) && unknown.is_empty(), "{unknown:?} of {:?}", named(&trace));
    // The reader of a log uses all of them and no others.
    let reader: String =
        ["reader", "steps", "callers"].map(|file| read(&format!("lab/proof/src/spec/trace/{file}.rs"))).concat();
    let reader: Names = quoted(&reader).filter(|name| is_action(name)).collect();
    assert_eq!(reader, &named(&trace) | &Names::from(["Expire".to_owned()]));
    let page = table(&read("lab/proof/spec/TRACE.md"), "## From the log to the specification");
    let told: Names = page.iter().flat_map(|row| row[0].split('`').skip(1).step_by(2).map(str::to_owned)).collect();
    let told: Names = told.into_iter().filter(|name| is_action(name)).collect();
    assert!(told.is_subset(&lock), "{:?}", &told - &lock);
    assert!(named(&trace).is_subset(&told), "{:?}", &named(&trace) - &told);
}

#[test]
#[limit]
fn each_constant_is_given_and_each_field_of_a_step_is_written() {
    let (lock, trace) = (read("lab/proof/spec/Lock.tla"), read("lab/proof/spec/Trace.tla"));
    let tla = read("lab/proof/src/spec/trace/tla.rs");
    let number = read("lab/proof/src/spec/trace.rs");
    let given = assigned(&format!("{tla}\n  {}", number.split("{config}").nth(1).unwrap()));
    assert_eq!(given, &declared(&lock) | &declared(&trace));
    let (step, _) = tla.split_once("fn claim(").unwrap();
    let [looked_at, written] = fields(&trace, step);
    assert_eq!(looked_at, written);
    let kinds = |text: &str, between: [&str; 2]| -> Names {
        let kinds = text.split(between[0]).skip(1).filter_map(|rest| rest.split_once(between[1]));
        kinds.map(|(kind, _)| kind.to_owned()).collect()
    };
    assert_eq!(kinds(&trace, ["E.kind = \"", "\""]), kinds(step, ["=> \"", "\""]));
}

/// The reader of logs has numbers and commands of docs/protocol.md, as the scripts have them.
#[test]
#[limit]
fn what_the_reader_of_logs_takes_for_granted_is_what_the_scripts_do() {
    let layout = read("stores/lock-redis/src/protocol/steps/lib/layout.lua");
    let (steps, reader) = (read("lab/proof/src/spec/trace/steps.rs"), read("lab/proof/src/spec/trace/reader.rs"));
    let number = |text: &str, name: &str| -> i64 {
        let line =
            text.lines().find(|line| line.contains(&format!("{name}:")) || line.contains(&format!("local {name} =")));
        let (_, value) = line.unwrap_or_else(|| panic!("no {name}")).split_once("= ").unwrap();
        value.trim_end_matches(';').replace('_', "").parse().unwrap()
    };
    assert_eq!(number(&steps, "const DRAWS"), number(&layout, "LAST_SEQ") + 1);
    assert_eq!(number(&steps, "const NUMBERS"), number(&layout, "LAST_NUMBER") + 1);
    assert_eq!(number(&reader, "const KEPT"), number(&layout, "QUEUE_KEPT"));
    assert_eq!(number(&steps, "const WINDOW") * 1000, number(&layout, "UNKNOWN_WINDOW"));
    assert_eq!(number(&steps, "const LONGEST_WINDOW") * 1000, number(&layout, "KNOWN_WINDOW"));

    let mut scripts = read("stores/lock-redis/src/protocol/steps/lock/native.rs");
    for folder in ["lib", "lock"] {
        for file in fs::read_dir(crate_file(&format!("../../stores/lock-redis/src/protocol/steps/{folder}"))).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "lua") {
                scripts.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let (protocol, page) = (read("docs/protocol.md"), read("lab/proof/spec/TRACE.md"));
    // Words that a server writes by itself: the database, the end of a lease, and times as they are, not as they are left.
    let servers = ["SELECT", "UNLINK", "PEXPIREAT", "PXAT"];
    let is_command = |word: &str| word.len() > 2 && word.chars().all(|sign| sign.is_ascii_uppercase());
    let commands: Names = quoted(&reader).filter(|word| is_command(word)).collect();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands.iter().filter(|command| !servers.contains(&&***command)) {
        assert!(scripts.contains(&format!("'{command}'")) || scripts.contains(&format!("\"{command}\"")), "{command}");
    }
    let rows = table(&page, "## From the log to the specification");
    let told = rows.iter().flat_map(|row| row[1].split('`').skip(1).step_by(2).collect::<Vec<_>>());
    let told: Names =
        told.flat_map(|text| text.split([' ', ',', '('])).map(str::to_owned).filter(|word| is_command(word)).collect();
    for word in told.iter().filter(|word| !servers.contains(&&***word)) {
        let somewhere = protocol.contains(&**word) || scripts.contains(&format!("'{word}'"));
        assert!(somewhere && commands.contains(word), "docs/protocol.md, the scripts or the reader have no {word}");
    }
}
