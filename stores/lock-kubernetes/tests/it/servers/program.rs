//! A program that ends with this process.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lock_testing::{freeze, thaw};

/// How long a server may take to start, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Starts a program. Ends it when standard input ends, even if the test is killed. Removes the folder of the server then,
/// unless it was told to keep it.
const GUARDED: &str = r#"
folder=$1 name=$2; shift 2
"$@" >>"$folder/$name.log" 2>&1 &
echo $! >"$folder/$name.pid"
read -r order
kill -KILL $!
wait $!
[ "$order" = keep ] || rm -rf "$folder"
"#;

pub(super) struct Program {
    /// The folder of the server, which its other program shares.
    folder: PathBuf,
    name: &'static str,
    command: Vec<String>,
    /// `None` while it is killed.
    guard: Option<Child>,
}

impl Program {
    pub(super) fn new(folder: &Path, name: &'static str, program: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        Self { folder: folder.to_owned(), name, command: vec![program.display().to_string()], guard: None }
    }

    pub(super) fn argument(&mut self, name: &str, value: &str) {
        self.command.push(format!("--{name}={value}"));
    }

    pub(super) fn arguments<const N: usize>(&mut self, arguments: [&str; N]) {
        self.command.extend(arguments.map(str::to_owned));
    }

    pub(super) fn launch(&mut self) {
        let _ = fs::remove_file(self.pid_file());
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARDED, "guard"]).arg(&self.folder).arg(self.name).args(&self.command);
        guard.current_dir(&self.folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.guard = Some(guard.spawn().unwrap());
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join(format!("{}.pid", self.name))
    }

    fn pid(&self) -> u32 {
        let mut pid = None;
        wait_until(|| {
            let written = fs::read_to_string(self.pid_file()).unwrap_or_default();
            pid = written.strip_suffix('\n').and_then(|pid| pid.parse().ok());
            pid.is_some()
        });
        pid.expect("a program that runs has an id")
    }

    /// Returns whether the process has ended by itself. Its guard has not asked for its end yet.
    pub(super) fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'))
    }

    pub(super) fn freeze(&self) {
        freeze(self.pid());
    }

    pub(super) fn thaw(&self) {
        thaw(self.pid());
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join(format!("{}.log", self.name))).unwrap_or_default()
    }

    pub(super) fn end(&mut self, keeps_folder: bool) {
        if let Some(mut guard) = self.guard.take() {
            let mut orders = guard.stdin.take().unwrap();
            if keeps_folder {
                let _ = orders.write_all(b"keep\n");
            }
            drop(orders);
            let _ = guard.wait();
        }
    }
}

/// Checks a condition every few milliseconds, until it holds or [`PATIENCE`] ends.
#[allow(clippy::disallowed_methods, reason = "tests live in real time, also those of other crates")]
pub(super) fn wait_until(mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}
