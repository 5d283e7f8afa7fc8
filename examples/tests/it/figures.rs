//! The figures that pages show are those of the published runs: `lab/benches/RESULTS.md` and `lab/proof/published`.

use lock_testing::limit;
use serde_json::Value;

use crate::pages::page;

/// A figure as a page shows it is the measured one, rounded to the digits that are shown.
#[track_caller]
fn shows(shown: &str, measured: f64) {
    let digits = shown.trim_matches(['*', ' ']).replace(',', "");
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    assert_eq!(digits, format!("{measured:.decimals$}"), "{shown} is shown for {measured}");
}

fn number(text: &str) -> f64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// The cells of a row of a table, by the text of its first cell.
#[track_caller]
fn row<'a>(page: &'a str, first: &str) -> Vec<&'a str> {
    let row = page.lines().find(|line| line.starts_with(&format!("| {first} |")));
    let row = row.unwrap_or_else(|| panic!("the page has no row {first:?}"));
    row.trim_matches('|').split('|').skip(1).map(str::trim).collect()
}

/// A section of the results, such as `hot`, from its name to the next empty line.
#[track_caller]
fn section<'a>(results: &'a str, name: &str) -> &'a str {
    let start = results.find(&format!("\n{name} – ")).unwrap_or_else(|| panic!("the results have no section {name}"));
    results[start + 1..].split("\n\n").next().unwrap()
}

/// A figure of the results: of a subject in a setting, by the title of its column.
#[track_caller]
fn measured(results: &str, name: &str, setting: &str, subject: &str, title: &str) -> f64 {
    let columns = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let section = section(results, name);
    let from = section.find(&format!("\n  {setting}")).unwrap_or_else(|| panic!("{name} has no setting {setting:?}"));
    let mut lines = section[from + 1..].lines();
    let titles = columns(lines.find(|line| line.contains("rate/s")).unwrap());
    // Single blanks stand between the titles behind "server µs", so they count as one title.
    let is_it = |other: &String| other.strip_prefix(title).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    let at = titles.iter().position(is_it).unwrap_or_else(|| panic!("no {title} in {titles:?}"));
    let line = lines.map(columns).find(|line| line.first().is_some_and(|first| first == subject));
    number(&line.unwrap_or_else(|| panic!("{name} has no {subject}"))[at + 1])
}

/// A figure behind the word `reach`.
#[track_caller]
fn reached(results: &str, name: &str, what: &str) -> f64 {
    let mut lines = section(results, name).lines().filter_map(|line| line.trim_start().strip_prefix("reach: "));
    let line = lines.find(|line| line.starts_with(&format!("{what}  ")));
    let line = line.unwrap_or_else(|| panic!("{name} has no target {what:?}"));
    number(line.trim_end_matches("NOT MET").trim_end_matches("met").split_whitespace().last().unwrap())
}

/// A figure below the tables of a row.
#[track_caller]
fn counted(results: &str, name: &str, what: &str) -> f64 {
    let mut lines = section(results, name).lines().filter_map(|line| line.trim_start().strip_prefix(what));
    let line = lines.find(|rest| rest.starts_with(' ')).unwrap_or_else(|| panic!("{name} has no figure {what:?}"));
    number(line.split_whitespace().next().unwrap())
}

#[test]
#[limit]
fn the_speed_in_the_readme_is_measured() {
    let (readme, results) = (page("README.md"), page("lab/benches/RESULTS.md"));
    let run = results.split("## ").next().unwrap();
    let commit = run.split("at commit `").nth(1).unwrap().split('`').next().unwrap();
    assert!(readme.contains(&format!("commit `{commit}`")), "the results are of commit {commit}");
    let (met, not) = (run.matches("  met\n").count(), run.matches("  NOT MET\n").count());
    assert!(readme.contains(&format!("{met} of {} targets", met + not)), "{met} of {} targets are met", met + not);
    for (first, name, settings) in [
        ("1 task, distinct keys", "idle", &["current-thread", "multi-thread"][..]),
        ("64 tasks, distinct keys", "many", &["64 tasks, current-thread", "64 tasks, multi-thread"]),
        ("one hot key, 64 tasks", "hot", &["current-thread", "multi-thread"]),
        ("one hot key, 4 processes × 16 tasks", "fleet", &["hold 0"]),
    ] {
        for (cell, title) in row(&readme, first).into_iter().zip(["rate/s", "× raw", "× rslock", "p99 ms"]) {
            let shown: Vec<&str> = cell.trim_end_matches(" ms").split(" / ").collect();
            assert_eq!(shown.len(), settings.len(), "{first}: {cell}");
            for (shown, setting) in shown.into_iter().zip(settings) {
                shows(shown, measured(&results, name, setting, "us", title));
            }
        }
    }
}

#[test]
#[limit]
fn the_speed_beside_other_libraries_is_measured() {
    let (comparison, results) = (page("docs/comparison.md"), page("lab/benches/RESULTS.md"));
    let table = comparison.split("Speed on two quiet processors").nth(1).unwrap();
    let others = [
        "rslock",
        "redis-py Lock",
        "node-redlock",
        "redsync",
        "redislock",
        "rueidislock",
        "Redisson RLock",
        "Redisson RFairLock",
        "Redisson RFencedLock",
    ];
    let mut sections = ["lonely", "others", "others-hot", "others-hot-1ms", "others-fleet", "others-fleet-1ms"].iter();
    for line in table.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take(6) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').skip(1).map(str::trim).collect();
        let name = sections.next().unwrap();
        assert_eq!(cells.len(), others.len(), "{line}");
        for (cell, other) in cells.into_iter().zip(others) {
            shows(cell, reached(&results, name, &format!("us / {other}")));
        }
    }
    assert!(sections.next().is_none(), "a row is missing");
    for what in ["rslock", "redislock"] {
        let figure = format!("{:.2}", reached(&results, "lonely", &format!("us / {what}")));
        assert!(comparison.contains(&figure), "{what}: {figure}");
    }
}

#[test]
#[limit]
fn what_distkit_wins_and_loses_is_measured() {
    let (comparison, results) = (page("docs/comparison.md"), page("lab/benches/RESULTS.md"));
    let cells = row(&comparison, "distkit 0.7");
    let (strong, but) = (cells[1], cells[2]);
    let shown = |text: &str, before: &str| -> String {
        let rest = text.split_once(before).unwrap_or_else(|| panic!("{text} has no {before:?}")).1;
        rest.split([' ', ';']).next().unwrap().to_owned()
    };
    let server = |subject| measured(&results, "idle", "current-thread", subject, "server µs");
    shows(&shown(strong, "one task, one thread: "), server("distkit") / server("us"));
    let rate = |tasks| 1.0 / reached(&results, "many", &format!("rate, us / distkit, {tasks} tasks, multi-thread"));
    shows(&shown(strong, "1,024 tasks: "), rate("1,024"));
    shows(&shown(but, "64 tasks: "), rate("64"));
    let readers = 1.0 / reached(&results, "shared", "rate, us / distkit, 95 % reads");
    shows(&shown(but, "of-distkit): "), readers);
    let verdicts: Value = serde_json::from_str(&page("lab/proof/published/verdicts.json")).unwrap();
    let mut verdicts = verdicts["verdicts"].as_array().unwrap().iter();
    let verdict = verdicts.find(|verdict| verdict["row"] == "distkit, all assumptions held").unwrap();
    assert!(but.contains(&format!("[{} overlaps]", verdict["overlaps"])), "{verdict}");
}

#[test]
#[limit]
fn the_speed_of_stores_and_segments_is_measured() {
    let results = page("lab/benches/RESULTS.md");
    let segments = page("lab/benches/README.md");
    let of = |first: &str| row(&segments, first).into_iter().last().unwrap();
    shows(of("`SETNX`, polled"), measured(&results, "hot", "current-thread", "raw", "changes/s"));
    shows(of("Redisson"), measured(&results, "fleet", "hold 0", "us", "rate/s"));
    shows(of("segments and a local cache"), measured(&results, "hot", "current-thread", "us", "rate/s"));
    let (rate, times) = of("segments, 32 slots").split_once(", ").unwrap();
    shows(rate, measured(&results, "shared", "", "us, any of 16 segments", "rate/s"));
    shows(times.split(' ').next().unwrap(), reached(&results, "shared", "rate, 16 segments / one lock"));

    let operations = page("docs/operations.md");
    let speed = |first: &str| row(&operations, first).into_iter().last().unwrap().to_owned();
    let store = |subject: &str| measured(&results, "stores", "64 tasks", subject, "rate/s");
    shows(&speed("[Sentinel](operations/sentinel.md)"), reached(&results, "stores", "rate, by sentinels / one server"));
    shows(
        speed("[cluster](operations/cluster.md) with replicas").trim_start_matches("about "),
        store("us, cluster of 1") / store("us"),
    );
    let confirmed = speed(
        "Sentinel or cluster, with [`?acks=all`](#replicas-that-confirm), or with `acks=1` if there is only one replica",
    );
    shows(&confirmed, reached(&results, "stores", "rate, acks=1 / one server"));
    let quorum = |setting: &str| {
        let rate = |subject: &str| measured(&results, "quorum", setting, subject, "rate/s");
        rate("us, quorum of 3") / rate("us, member 2")
    };
    let shown = speed("[quorum](operations/quorum.md) of three, if one member fails");
    let (near, far) = shown.split_once(" on loopback, ").unwrap();
    shows(near, quorum("loopback"));
    shows(far.split(' ').next().unwrap(), quorum("a round trip of 5 ms"));
    let page = page("docs/operations/quorum.md");
    for what in ["5 ms away", "loopback"] {
        let times = reached(&results, "quorum", &format!("wait p50, quorum of 3 / its median member, {what}"));
        assert!(page.contains(&format!("{times} ×")), "{what}: {times}");
    }
    shows("5", counted(&results, "lonely", "commands a pair, us"));
    assert!(
        operations.contains("| commands | to take and release a free lock: two messages with five commands"),
        "a pair is five commands"
    );
}

#[test]
#[limit]
fn what_many_processes_cost_is_measured() {
    let (operations, results) = (page("docs/operations.md"), page("lab/benches/RESULTS.md"));
    let table = operations.split("| processes | what they do |").nth(1).unwrap();
    let cells = |first: &str| -> Vec<&str> { row(table, first) };
    let at = |name: &str, what: &str| counted(&results, name, what);
    let percent = |shown: &str, measured: f64| shows(shown.trim().trim_end_matches('%'), measured);
    percent(cells("2,000 | only connected")[2], at("candidates", "2000 × 1: server at rest, of one core"));
    percent(cells("1 | holds 100,000 locks of 30 s")[2], at("watchdog", "server, of one core"));
    for (first, name, subject) in [
        ("400 | each waits for the same 20 locks", "waits", "400 × 20"),
        ("2,000 | are candidates of one election", "candidates", "2000 × 1"),
        ("1 | waits for 20,000 locks", "waits", "1 × 20000"),
    ] {
        shows(cells(first)[1], at(name, &format!("{subject}: commands a second")));
        percent(cells(first)[2], at(name, &format!("{subject}: server, of one core")));
    }
    let of = |title| measured(&results, "fleets", "", "us, 1,000 managers", title);
    let row = table.lines().find(|line| line.contains("pass one lock on")).unwrap();
    shows(row.split("on, ").nth(1).unwrap().split(' ').next().unwrap(), of("rate/s"));
    percent(row.split('|').nth(4).unwrap(), of("rate/s") * of("server µs") / 10_000.0);
}

#[test]
#[limit]
fn the_proof_in_the_readme_is_the_published_one() {
    let readme = page("README.md");
    let read = |name: &str| -> Value { serde_json::from_str(&page(&format!("lab/proof/published/{name}"))).unwrap() };
    let (run, verdicts) = (read("run.json"), read("verdicts.json"));
    let options = &run["options"];
    let command = format!("--minutes {} --seed {}", options["minutes"].as_f64().unwrap(), options["seed"]);
    assert!(readme.contains(&command), "the published run is {command}");
    let verdicts = verdicts["verdicts"].as_array().unwrap();
    assert!(readme.contains(&format!("all {} rows", verdicts.len())));
    for (first, server) in [
        ("one server", "one server"),
        ("Sentinel, `acks=all`", "Sentinel"),
        ("Cluster, `acks=all`", "Cluster"),
        ("quorum of three", "quorum of three"),
    ] {
        let name = format!("ours, every kind of caller, {server}, all assumptions held");
        let verdict = verdicts.iter().find(|verdict| verdict["row"] == name).unwrap();
        let excused = |what: &str| {
            let (all, excused) = (&verdict[what], &verdict[format!("{what}_excused")]);
            let (all, excused) = (all.as_u64().unwrap(), excused.as_u64().unwrap());
            if excused == 0 { all.to_string() } else { format!("{} (+{excused} after data loss)", all - excused) }
        };
        let expected =
            [verdict["sections"].to_string(), excused("overlaps"), excused("inversions"), verdict["left"].to_string()];
        assert_eq!(row(&readme, first), expected, "{first}");
    }
}

#[test]
#[limit]
fn the_number_of_alerts_is_counted() {
    let alerts = page("dashboards/alerts.yml").matches("- alert: ").count();
    for name in ["README.md", "README.zh-CN.md", "dashboards/README.md"] {
        let text = page(name);
        assert!(
            text.contains(&format!("{alerts} alerts")) || text.contains(&format!("{alerts} 条")),
            "{name}: there are {alerts} alerts"
        );
    }
}
