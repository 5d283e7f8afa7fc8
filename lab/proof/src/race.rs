//! Forces the race between check and commit. The first process checks or pins its lock in a transaction, and stands
//! still past the lease. The second asks for the lock meanwhile. Each adds one to a counter.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::peers::below;
use lock_testing::PostgresServer;

/// One subject of the race: its name, its command, and the query that tells when the lease has ended. Each racer's own
/// arguments are appended to the command.
struct Subject {
    name: &'static str,
    command: Vec<String>,
    ended: &'static str,
    /// Whether both additions must be there. A subject that only checks must lose one; otherwise the race did not happen.
    keeps: bool,
}

const OURS: &str = "SELECT until < clock_timestamp() FROM lock_core.lock WHERE key = 'race'";

/// Runs the race with each subject, and prints the result. Returns whether it is as expected.
pub(crate) fn run() -> Result<bool, String> {
    if let Some(why) = PostgresServer::missing(&["initdb"]) {
        return Err(format!("the race is one of PostgreSQL, and {why}"));
    }
    let this = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let ours =
        |pins: bool| [&*this.display().to_string(), "caller", "race", &format!("pins={pins}")].map(str::to_owned);
    let pg_lease = below("target/peers/pg_lease_race");
    let mut subjects = vec![
        Subject { name: "ours, pin", command: ours(true).to_vec(), ended: OURS, keeps: true },
        Subject { name: "ours, a look instead", command: ours(false).to_vec(), ended: OURS, keeps: false },
    ];
    if pg_lease.exists() {
        let ended = "SELECT held_until < clock_timestamp() FROM _pg_lease WHERE name = 'race'";
        let command = vec![pg_lease.display().to_string()];
        subjects.push(Subject { name: "pg_lease 0.1.3, verify_lease_held", command, ended, keeps: false });
    } else {
        println!("not installed, so not run: pg_lease: run sh scripts/need-peers.sh");
    }
    println!("| subject | the second, while the first stands still past its lease | commits | counter | |");
    println!("|---|---|---:|---:|---|");
    let mut right = true;
    for subject in &subjects {
        let (met, commits, counter) = race(subject)?;
        let verdict = if counter == commits { "holds" } else { "a write is lost" };
        println!("| {} | {met} | {commits} | {counter} | {verdict} |", subject.name);
        right &= commits == 2 && (counter == commits) == subject.keeps;
    }
    Ok(right)
}

/// Returns what the second process met, the number of committed transactions, and the counter.
fn race(subject: &Subject) -> Result<(&'static str, u64, u64), String> {
    let server = PostgresServer::start();
    server.run("CREATE TABLE counter (n bigint NOT NULL); INSERT INTO counter VALUES (0); CREATE TABLE done (who text NOT NULL)");
    let mut first = Racer::start(subject, &server, "first")?;
    first.says_one_of(&["looked"])?;
    while server.run(subject.ended) != "t" {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let mut second = Racer::start(subject, &server, "second")?;
    let met = match &*second.says_one_of(&["looked", "refused"])? {
        "looked" => {
            second.write()?;
            first.write()?;
            "is let in"
        }
        _ => {
            first.write()?;
            second.says_one_of(&["looked"])?;
            second.write()?;
            "is refused until the commit"
        }
    };
    let count = |sql: &str| server.run(sql).parse::<u64>().map_err(|_| format!("{}: no number", subject.name));
    Ok((met, count("SELECT count(*) FROM done")?, count("SELECT n FROM counter")?))
}

/// One of the two racers. It is killed on drop.
struct Racer {
    process: Child,
    says: BufReader<ChildStdout>,
    name: &'static str,
}

impl Racer {
    fn start(subject: &Subject, server: &PostgresServer, name: &'static str) -> Result<Self, String> {
        let [program, words @ ..] = &*subject.command else { return Err("a subject has no program".to_owned()) };
        let mut command = Command::new(program);
        command.args(words);
        // Callers of this program take named arguments.
        let (url, who) = (server.url(), name.to_owned());
        command.args(if words.is_empty() { [url, who] } else { [format!("url={url}"), format!("name={who}")] });
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.map_err(|error| format!("cannot run {program}: {error}"))?;
        let says = BufReader::new(process.stdout.take().ok_or("it has no output")?);
        Ok(Self { process, says, name })
    }

    /// Waits for one of these lines, and skips whatever the library prints before.
    fn says_one_of(&mut self, wanted: &[&str]) -> Result<String, String> {
        loop {
            let mut line = String::new();
            self.says.read_line(&mut line).map_err(|error| format!("the {} says nothing: {error}", self.name))?;
            match line.trim() {
                said if wanted.contains(&said) => return Ok(said.to_owned()),
                said if line.is_empty() || said.starts_with("failed") => {
                    return Err(format!("the {} said {said:?} and not {}", self.name, wanted.join(" or ")));
                }
                _ => {}
            }
        }
    }

    /// Orders the racer to write and commit, and waits until it has. pg_lease may drop the work between its commit and its
    /// confirmation, and then begins it anew.
    fn write(&mut self) -> Result<(), String> {
        let input = self.process.stdin.as_mut().ok_or("it has no input")?;
        writeln!(input).map_err(|error| format!("the {} has ended: {error}", self.name))?;
        self.says_one_of(&["committed", "looked"]).map(drop)
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
