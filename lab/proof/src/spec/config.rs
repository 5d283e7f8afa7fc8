//! The `.cfg` files beside the modules. The first comments of each file say what TLC is to check.

use std::fs;
use std::path::Path;

/// One `.cfg` file.
pub(super) struct Config {
    /// The name of the file, such as `Lock-fence`.
    pub(super) name: String,
    pub(super) module: String,
    text: String,
    /// The claim, or the assumption that the file breaks.
    says: String,
    wanted: Wanted,
    /// The claim must fail without any one of these rules.
    without: Vec<String>,
    /// Greater bounds, `NAME = VALUE; NAME = VALUE`.
    longer: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Holds,
    CounterExample,
}

/// One run of TLC.
pub(super) struct Row {
    /// The name of the configuration; `rule` is the one that is taken out, if any.
    config: String,
    pub(super) rule: Option<String>,
    pub(super) module: String,
    pub(super) text: String,
    pub(super) wanted: Wanted,
}

pub(super) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Reads every `.cfg` of a folder, claims first.
pub(super) fn read_all(spec: &Path) -> Result<Vec<Config>, String> {
    let folder = fs::read_dir(spec).map_err(|error| format!("cannot read {}: {error}", spec.display()))?;
    let mut configs = Vec::new();
    for file in folder {
        let path = file.map_err(|error| format!("cannot read {}: {error}", spec.display()))?.path();
        if path.extension().is_some_and(|ending| ending == "cfg") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            configs.push(parse(name, read(&path)?)?);
        }
    }
    configs.sort_by_key(|config| (config.wanted == Wanted::CounterExample, config.name.clone()));
    Ok(configs)
}

fn parse(name: String, text: String) -> Result<Config, String> {
    let Some((module, _)) = name.split_once('-') else {
        return Err(format!("{name}.cfg is not called MODULE-NAME.cfg"));
    };
    let mut config = Config {
        module: module.to_owned(),
        name,
        says: String::new(),
        wanted: Wanted::Holds,
        without: Vec::new(),
        longer: Vec::new(),
        text: String::new(),
    };
    for comment in text.lines().filter_map(|line| line.strip_prefix("\\* ")) {
        if let Some(rules) = comment.strip_prefix("Without: ") {
            config.without = rules.split(' ').map(str::to_owned).collect();
        } else if let Some(bounds) = comment.strip_prefix("Longer: ") {
            config.longer = bounds.split("; ").map(str::to_owned).collect();
        } else if let Some(assumption) = comment.strip_prefix("Ends in a counter-example: ") {
            config.wanted = Wanted::CounterExample;
            assumption.clone_into(&mut config.says);
        } else if config.says.is_empty() {
            comment.clone_into(&mut config.says);
        }
    }
    if config.says.is_empty() {
        return Err(format!("{}.cfg does not say in its first line what it is", config.name));
    }
    config.text = text;
    Ok(config)
}

impl Config {
    /// The name without the module.
    pub(super) fn short(&self) -> &str {
        self.name.split_once('-').map_or(&*self.name, |(_, short)| short)
    }

    /// The claim with all its rules, and once without each of them.
    pub(super) fn rows(&self, longer: bool) -> Vec<Row> {
        let mut text = self.text.clone();
        for bound in self.longer.iter().filter(|_| longer) {
            text = with(&text, bound);
        }
        let row = |rule: Option<&String>| Row {
            config: self.name.clone(),
            rule: rule.cloned(),
            module: self.module.clone(),
            text: rule.map_or_else(|| text.clone(), |rule| with(&self.text, &format!("Off = {{\"{rule}\"}}"))),
            wanted: if rule.is_some() { Wanted::CounterExample } else { self.wanted },
        };
        std::iter::once(row(None)).chain(self.without.iter().map(|rule| row(Some(rule)))).collect()
    }
}

impl Row {
    pub(super) fn title(&self) -> String {
        match &self.rule {
            Some(rule) => format!("{} without {rule}", self.config),
            None => self.config.clone(),
        }
    }

    /// The name of the folder for TLC's output on this row.
    pub(super) fn file(&self) -> String {
        self.title().replace(' ', "-")
    }

    /// The number of processes and claims, the last tick, the length of a lease, and the faults that may strike once each.
    pub(super) fn bounds(&self) -> String {
        let value = |name: &str| {
            let value = self.text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(" = "));
            value.unwrap_or_default().to_owned()
        };
        let processes = value("Processes").split(',').count();
        let members = value("Members").split(',').filter(|member| !member.is_empty()).count();
        let members = if members == 0 { String::new() } else { format!("{members} members, ") };
        let faults = value("Faults").replace(['{', '}', '"'], "");
        let faults = if faults.is_empty() { faults } else { format!("; {faults}") };
        let late = value("Latecomers").split(['{', ',', '}']).filter(|process| !process.is_empty()).count();
        let faults = if late == 0 { faults } else { format!(", {late} late{faults}") };
        let way = value("OnTheWay");
        let faults = if matches!(&*way, "" | "9") { faults } else { format!(", {way} on the way{faults}") };
        format!("{members}{processes} × {}, {} ticks, ttl {}{faults}", value("Claims"), value("Horizon"), value("Ttl"))
    }
}

/// Sets a constant.
fn with(text: &str, bound: &str) -> String {
    let name = bound.split(" = ").next().unwrap_or_default();
    let line = |line: &str| match line.trim().strip_prefix(name).is_some_and(|rest| rest.starts_with(" = ")) {
        true => format!("  {bound}\n"),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The names of the actions in `Next`, in their order.
pub(super) fn actions(module: &str) -> Vec<String> {
    let lines = module.lines().skip_while(|line| !line.starts_with("Next ==")).skip(1);
    let next = lines.take_while(|line| line.starts_with(' ')).collect::<Vec<_>>().join(" ");
    let parts = next.split(['/', ':']);
    let names = parts.map(|part| part.trim().split(['(', ' ']).next().unwrap_or_default().to_owned());
    names.filter(|name| name.starts_with(char::is_uppercase)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lock_testing::limit;

    use super::{Wanted, read, read_all};

    /// README.md has a table of the checked bounds. If the bounds of a claim change, the table no longer describes it.
    #[test]
    #[limit]
    fn the_page_has_the_bounds_of_each_claim_as_they_are() {
        let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("spec");
        let page = read(&spec.join("README.md")).unwrap();
        let table = page.split("## Bounds").nth(1).unwrap().split("\n## ").next().unwrap();
        let told: Vec<String> = table.lines().filter(|line| line.starts_with("| ")).skip(1).map(cells).collect();
        let claims = read_all(&spec).unwrap().into_iter().filter(|config| config.wanted == Wanted::Holds);
        let rows = claims.map(|config| config.rows(false).remove(0));
        let rows: Vec<String> = rows.map(|row| format!("{} | {}", row.title(), row.bounds())).collect();
        assert_eq!(told, rows);
    }

    #[test]
    #[limit]
    fn each_greater_bound_is_set_and_nothing_else_is_changed() {
        let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("spec");
        let mut changed = 0;
        for config in read_all(&spec).unwrap() {
            let longer = config.rows(true)[0].text.clone();
            for bound in &config.longer {
                assert!(longer.lines().any(|line| line.trim() == bound), "{}: {bound}", config.name);
            }
            let lines = config.text.lines().zip(longer.lines()).filter(|(one, other)| one != other).count();
            assert_eq!(
                (lines, longer.lines().count()),
                (config.longer.len(), config.text.lines().count()),
                "{}",
                config.name
            );
            assert!(config.longer.iter().all(|bound| bound.matches('{').count() == bound.matches('}').count()));
            changed += lines;
        }
        assert!(changed > 20, "{changed}");
    }

    /// The action of a fault that no file lists could never happen.
    #[test]
    #[limit]
    fn each_fault_of_the_specification_strikes_in_some_file_at_its_usual_bounds() {
        let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("spec");
        let rows: Vec<_> = read_all(&spec).unwrap().iter().map(|config| config.rows(false).remove(0)).collect();
        let mut faults = 0;
        for module in ["Lock", "Quorum"] {
            let text = read(&spec.join(format!("{module}.tla"))).unwrap();
            let all = text.lines().find_map(|line| line.strip_prefix("AllFaults == ")).unwrap();
            for fault in all.trim_matches(['{', '}']).split(", ") {
                let strikes =
                    |text: &str| text.lines().any(|line| line.trim().starts_with("Faults = ") && line.contains(fault));
                let struck = rows.iter().filter(|row| row.module == module).any(|row| strikes(&row.text));
                assert!(struck, "{fault} of {module}.tla strikes in no .cfg");
                faults += 1;
            }
        }
        assert_eq!(faults, 13);
    }

    fn cells(line: &str) -> String {
        line.trim_matches(['|', ' ']).split(" | ").take(2).collect::<Vec<_>>().join(" | ")
    }
}
