//! What is to be checked: the `.cfg` files beside the modules, whose first comments say what they are.

use std::fs;
use std::path::Path;

/// One `.cfg` file.
pub(super) struct Config {
    /// As the file is called, `Lock-fence`.
    pub(super) name: String,
    pub(super) module: String,
    text: String,
    /// What it claims, or which assumption it breaks.
    says: String,
    wanted: Wanted,
    /// The rules without each of which the claim fails.
    without: Vec<String>,
    /// Greater bounds, `NAME = VALUE`.
    longer: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Holds,
    CounterExample,
}

/// One run of TLC.
pub(super) struct Row {
    /// The name of the configuration, and the rule that is taken out.
    config: String,
    rule: Option<String>,
    pub(super) module: String,
    pub(super) text: String,
    pub(super) wanted: Wanted,
    pub(super) longer: bool,
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
            config.longer = bounds.split(", ").map(str::to_owned).collect();
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
    /// The name without its module.
    pub(super) fn short(&self) -> &str {
        self.name.split_once('-').map_or(&*self.name, |(_, short)| short)
    }

    /// The claim with all its rules, and without each one of them.
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
            longer,
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

    /// The name of what TLC writes about it.
    pub(super) fn file(&self) -> String {
        self.title().replace(' ', "-")
    }

    /// How many processes and claims there are, and how far time goes.
    pub(super) fn bounds(&self) -> String {
        let value = |name: &str| {
            let value = self.text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(" = "));
            value.unwrap_or_default().to_owned()
        };
        let processes = value("Processes").split(',').count();
        format!("{processes} × {}, {} ticks", value("Claims"), value("Horizon"))
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

/// The names of the actions in `Next`, in order.
pub(super) fn actions(module: &str) -> Vec<String> {
    let lines = module.lines().skip_while(|line| !line.starts_with("Next ==")).skip(1);
    let next = lines.take_while(|line| line.starts_with(' ')).collect::<Vec<_>>().join(" ");
    let parts = next.split(['/', ':']);
    let names = parts.map(|part| part.trim().split(['(', ' ']).next().unwrap_or_default().to_owned());
    names.filter(|name| name.starts_with(char::is_uppercase)).collect()
}
