//! The statements of `docs/fencing.md`, on real databases.

mod mariadb;
mod postgres;
mod session;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pages::blocks;

/// The statements of one database, by the name in their first line.
fn statements(database: &str) -> BTreeMap<String, String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fencing.md")).unwrap();
    let sql = blocks(&page).into_iter().filter(|(language, _)| language == "sql");
    let named = sql.map(|(_, code)| {
        let (name, statement) = code.split_once('\n').unwrap();
        (name.strip_prefix("-- ").unwrap().to_owned(), statement.to_owned())
    });
    let ours = |(name, statement): (String, String)| {
        Some((name.strip_prefix(database)?.strip_prefix(": ")?.to_owned(), statement))
    };
    named.filter_map(ours).collect()
}

/// Takes the statement whose name begins with this text.
fn take(statements: &mut BTreeMap<String, String>, name: &str) -> String {
    let name = statements.keys().find(|key| key.as_str() == name || key.starts_with(&format!("{name}:"))).cloned();
    let name = name.unwrap_or_else(|| panic!("the page has no such statement"));
    statements.remove(&name).unwrap()
}

/// Finds a program of a database.
fn program(names: &[&str]) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // The path where Debian puts the servers.
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        folders.splice(0..0, versions.flatten().map(|version| version.path().join("bin")));
    }
    folders.push("/usr/sbin".into());
    let found =
        names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{names:?} is missing; install it with: sh scripts/need-databases.sh"))
}

/// Prepares to run a server's program with a folder of its own. Servers refuse to run as root.
fn unprivileged(program: &Path, folder: &Path) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(program);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    // Two servers that are made at a time would delete each other's files in /tmp.
    command.env("LC_ALL", "C").env("HOME", "/nonexistent").env("TMPDIR", folder);
    command
}

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    String::from_utf8_lossy(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0"
}

/// Creates a folder that the server may write to, with a name short enough for a socket in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("lock-sql-").tempdir().unwrap();
    if is_root() {
        std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    folder
}
