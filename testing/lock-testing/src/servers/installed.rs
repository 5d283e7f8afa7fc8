//! PostgreSQL as it is installed: its programs, and the data folder of a new server.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_store::types::system::sync::Mutex;

/// The uid under which servers run if the tests run as root: they refuse to run as root.
const NOBODY: u32 = 65534;

/// The options of every data folder.
const INITDB: [&str; 9] = ["-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"];

/// Makes a folder for a server, which its user may write.
pub(super) fn new_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("lock-pg-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("a directory for the server can be made");
    give_away(&folder);
    folder
}

/// Gives a file of root to the user under which servers run.
pub(super) fn give_away(file: &Path) {
    if is_root() {
        std::os::unix::fs::chown(file, Some(NOBODY), Some(NOBODY)).expect("root may give a file away");
    }
}

/// Finds a program of PostgreSQL, which must be installed.
pub(super) fn program(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| panic!("{name} is missing; install PostgreSQL with: sh scripts/need-databases.sh"))
}

pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Debian installs the servers here.
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        folders.splice(0..0, versions.flatten().map(|version| version.path().join("bin")));
    }
    // The folder of another version, if this variable names one. Programs that it lacks are taken from the machine.
    folders.splice(0..0, std::env::var_os("LOCK_TEST_POSTGRES").map(PathBuf::from));
    folders.push("/usr/sbin".into());
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

pub(super) fn unprivileged(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    prepare(&mut command, folder);
    command
}

/// Drops privileges, and removes the settings of the user who runs the tests.
pub(super) fn prepare(command: &mut Command, folder: &Path) {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    // Two servers that are made at the same time would delete each other's files in /tmp.
    command.env("LC_ALL", "C").env("HOME", "/nonexistent").env("TMPDIR", folder).current_dir(folder);
}

/// Returns the user under which servers run.
fn user() -> u32 {
    if is_root() { NOBODY } else { rustix::process::geteuid().as_raw() }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes the folder `data` of a new server from a template, a packed folder that `initdb` has made. Unpacking takes a small part of the
/// time of `initdb`. Two servers of one template have the same system identifier.
pub(super) fn make_data(folder: &Path) {
    // Another version of PostgreSQL, other options or another user have another template.
    let initdb = program("initdb");
    let file = fs::metadata(&initdb).expect("initdb is a file");
    let mut hash = DefaultHasher::new();
    (&initdb, file.len(), file.mtime(), INITDB, user()).hash(&mut hash);
    make_data_from(&std::env::temp_dir().join(format!("lock-pg-template-{:016x}.tar", hash.finish())), folder);
}

fn make_data_from(template: &Path, folder: &Path) {
    static MAKING: Mutex<()> = Mutex::new(());
    // The first thread makes the template. The other threads wait, and then unpack it.
    let _turn = (!template.exists()).then(|| MAKING.lock());
    let [data, whole, packed] = ["data", "whole", "packed"].map(|name| folder.join(name));
    let tar = |action: &str, file: &Path, members: &[&str]| {
        let mut tar = unprivileged(Path::new("tar"), folder);
        tar.arg(action).arg(file).args(members).output().is_ok_and(|done| done.status.success())
    };
    // The last member shows that the file was not cut off. In a common folder, another user could have put a file there.
    let is_own = fs::symlink_metadata(template).is_ok_and(|file| file.uid() == user());
    if is_own && tar("-xf", template, &[]) && fs::remove_file(&whole).is_ok() {
        return;
    }
    let _ = fs::remove_dir_all(&data);
    let made = unprivileged(&program("initdb"), folder).args(INITDB).arg(&data).output().expect("initdb can be run");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    // A process that ends here leaves no half of a template, and a machine that stops leaves none either.
    let _ = fs::write(&whole, "");
    if tar("-cf", &packed, &["data", "whole"]) && File::open(&packed).is_ok_and(|file| file.sync_all().is_ok()) {
        // Of two processes that make it at once, the later one replaces the template of the earlier one.
        let _ = fs::rename(&packed, template);
    }
    let _ = (fs::remove_file(&packed), fs::remove_file(&whole));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{make_data_from, new_folder};
    use crate::limit;

    #[test]
    #[limit]
    fn a_template_is_made_once_and_a_part_of_one_is_never_used() {
        let folders = [(); 5].map(|()| new_folder());
        let template = folders[0].join("template.tar");
        let data = |at: usize| {
            make_data_from(&template, &folders[at]);
            for file in ["PG_VERSION", "global/pg_control", "base/1/PG_VERSION", "pg_hba.conf"] {
                assert!(folders[at].join("data").join(file).is_file(), "{file} of folder {at}");
            }
            assert!(!folders[at].join("whole").exists() && !folders[at].join("packed").exists());
            fs::read(folders[at].join("data/global/pg_control")).unwrap()
        };
        std::thread::scope(|scope| {
            let both = [0, 1].map(|at| scope.spawn(move || data(at)));
            let [one, other] = both.map(|made| made.join().unwrap());
            assert!(one == other && other == data(2), "one initdb serves three folders");
        });
        // Without the last member: cut off between two members, and in the middle of one.
        let made = fs::read(&template).unwrap();
        let end = made.windows(5).rposition(|name| name == b"whole").unwrap();
        for (at, bytes) in [(3, end), (4, made.len() / 2 + 1)] {
            fs::write(&template, &made[..bytes]).unwrap();
            data(at);
            assert!(fs::metadata(&template).unwrap().len() > u64::try_from(end).unwrap(), "it was made anew");
        }
        for folder in folders {
            let _ = fs::remove_dir_all(folder);
        }
    }
}
