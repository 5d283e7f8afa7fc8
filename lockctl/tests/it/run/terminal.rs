//! `lockctl run` at a terminal, with a shell that has job control.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use lock_testing::{RedisServer, limit};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::program::lockctl;
use crate::run::{is_alive, is_free, until};

/// The columns that a failed test prints for each process.
const PS: &str = "pid,ppid,pgid,tpgid,stat,pending,blocked,ignored,caught,wchan:20,args";

/// A terminal with a program in its foreground. The terminal is closed when this is dropped.
struct Terminal {
    keyboard: File,
    screen: String,
    program: Child,
}

impl Terminal {
    /// Starts a shell with job control, in which `$L` is `lockctl run`.
    fn shell(server: &RedisServer) -> Self {
        let mut terminal = Self::start(server, &["bash", "--norc", "--noediting", "-i"]);
        terminal.shows("READY>");
        terminal
    }

    /// Starts a program as the leader of a session of its own, with no signal ignored.
    fn start(server: &RedisServer, program: &[&str]) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let device = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        rustix::io::ioctl_fionbio(&keyboard, true).unwrap();
        let stream = || Stdio::from(device.try_clone().unwrap());
        let mut command = Command::new("setsid");
        command.args(["--ctty", "env", "--default-signal"]).args(program).env("LOCK_URL", server.url());
        let lockctl = env!("CARGO_BIN_EXE_lockctl");
        command.env("PS1", "READY>").env("L", format!("{lockctl} run lock:backup"));
        command.env("A", format!("{lockctl} acquire lock:backup --holder bob"));
        let program = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        Self { keyboard: File::from(keyboard), screen: String::new(), program }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows a text, and returns what was shown before it.
    #[track_caller]
    fn shows(&mut self, text: &str) -> String {
        let mut found = None;
        until(&format!("{text:?} is shown"), || {
            let mut chunk = [0; 1024];
            while let Ok(length @ 1..) = self.keyboard.read(&mut chunk) {
                self.screen.push_str(&String::from_utf8_lossy(&chunk[..length]));
            }
            found = self.screen.find(text);
            found.is_some() || self.program.try_wait().unwrap().is_some()
        });
        let Some(at) = found else { panic!("it ended without showing {text:?}: {}", self.screen) };
        let before = self.screen.drain(..at + text.len()).collect::<String>();
        before[..at].to_owned()
    }

    /// Waits for the prompt, and checks the exit code that the shell has seen.
    #[track_caller]
    fn ended_with(&mut self, code: u8) {
        // The typed text is shown too, so it differs from the awaited text.
        self.press("echo \"code\"=$?\n");
        self.shows(&format!("code={code}\r\n"));
    }

    fn end(mut self) -> Option<i32> {
        drop(std::mem::replace(&mut self.keyboard, File::open("/dev/null").unwrap()));
        self.program.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the screen shows: {:?}", self.screen);
            let table = Command::new("ps").args(["-s", &self.program.id().to_string(), "-o", PS]).output();
            println!("its processes:\n{}", String::from_utf8_lossy(&table.unwrap().stdout));
        }
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// The number that a command printed between two words.
fn number(terminal: &mut Terminal) -> u32 {
    terminal.shows("pid=");
    terminal.shows(".").parse().unwrap()
}

/// Waits until a command, which printed its number, has become `sleep`. A key pressed while a shell starts a program may be
/// lost: the shell handles the signal by waiting for the program, and the program has the handlers of the shell until it runs.
fn sleeper(terminal: &mut Terminal) {
    let command = number(terminal).to_string();
    let is_asleep =
        || Command::new("ps").args(["-o", "comm=", "-p", &command]).output().unwrap().stdout.starts_with(b"sleep");
    until("the command sleeps", is_asleep);
}

#[test]
#[limit]
fn a_command_reads_from_its_terminal_and_gets_its_keys() {
    let server = RedisServer::start();
    let mut shell = Terminal::shell(&server);
    // The command is in the foreground before its first step.
    shell.press("$L -- sh -c 'ps -o stat= -p $$; read word; echo \"got\"=$word, \"pid\"=$$.; exec sleep 600'\n");
    shell.shows("+");
    shell.press("hello\n");
    shell.shows("got=hello");
    sleeper(&mut shell);
    shell.press("\x03");
    shell.ended_with(130);
    assert!(is_free(&server));
    // A part of a pipeline that reads keys, as a pager does, keeps the terminal; a command that asks for it gets it.
    shell.press(
        "$L -- sh -c 'echo $$; exec sleep 600' | sh -c 'read pid; read key </dev/tty; echo \"$key\", \"pid\"=$pid.; read all'\n",
    );
    shell.press("key\n");
    shell.shows("key, ");
    sleeper(&mut shell);
    shell.press("\x03");
    shell.ended_with(130);
    shell.press("$L -- sh -c 'read word </dev/tty; echo \"asked\"=$word' | cat\n");
    shell.press("secret\n");
    shell.shows("asked=secret");
    shell.ended_with(0);
    assert!(is_free(&server));
}

#[test]
#[limit]
fn ctrl_z_stops_the_job_and_the_shell_continues_it() {
    let server = RedisServer::start();
    let mut shell = Terminal::shell(&server);
    for pipe in ["", " | cat", " 2>&1 | tee /dev/null"] {
        shell.press(&format!("$L -- sh -c 'echo \"pid\"=$$.; read word; echo \"got\"=$word'{pipe}\n"));
        number(&mut shell);
        shell.press("\x1a");
        shell.shows("Stopped");
        assert!(!is_free(&server));
        shell.press("fg\n");
        shell.press("hello\n");
        shell.shows("got=hello");
        shell.ended_with(0);
        assert!(is_free(&server), "{pipe}");
    }
    // From the background, its first read stops the job, as that of any other command.
    shell.press("$L -- sh -c 'read word; echo \"got\"=$word' &\n");
    shell.press("until jobs | grep Stopped; do sleep 0.05; done\n");
    shell.shows("Stopped");
    shell.press("fg\n");
    shell.press("there\n");
    shell.shows("got=there");
    shell.ended_with(0);
    // A job that is stopped is ended as any other.
    shell.press("$L -- sh -c 'echo \"pid\"=$$.; exec sleep 600'\n");
    let command = number(&mut shell);
    shell.press("\x1a");
    shell.shows("Stopped");
    shell.press("kill %1\n");
    until("the lock is free", || is_free(&server));
    assert!(!is_alive(command));
}

#[test]
#[limit]
fn a_job_that_stays_stopped_is_ended_with_its_lease() {
    let server = RedisServer::start();
    let mut shell = Terminal::shell(&server);
    shell.press("$L --ttl 1s -- sh -c 'echo \"pid\"=$$.; exec sleep 600'\n");
    let command = number(&mut shell);
    shell.press("\x1a");
    shell.shows("Stopped");
    until("the command is ended", || !is_alive(command));
    until("the lock is free", || is_free(&server));
    shell.press("fg\n");
    shell.shows("lost: ");
    shell.ended_with(76);
}

#[test]
#[limit]
fn the_terminal_is_put_back_as_it_was() {
    let server = RedisServer::start();
    let mut shell = Terminal::shell(&server);
    // A script reads from the terminal afterwards, with its echo.
    shell.press("sh -c '$L -- sh -c \"stty -echo; kill -KILL \\$\\$\"; stty; read word; echo \"after\"=$word'\n");
    let settings = shell.shows("baud");
    shell.press("word\n");
    let settings = settings + &shell.shows("after=word");
    assert!(!settings.contains("-echo\r") && !settings.contains("-echo "), "{settings}");
    // Ctrl-C ends the script too, of which the terminal knows nothing.
    shell.press("sh -c '$L -- sh -c \"echo \\\"pid\\\"=1.; exec sleep 600\"; echo \"next\"=step'; echo \"shell\"=on\n");
    number(&mut shell);
    shell.press("\x03");
    shell.press("echo \"shell\"=on\n");
    let between = shell.shows("shell=on");
    assert!(!between.contains("next=step"), "{between}");
    assert!(is_free(&server));
}

#[test]
#[limit]
fn when_the_terminal_is_closed_the_command_ends() {
    for (options, script) in
        [("", "exec sleep 600"), ("--grace 100ms", "trap \"\" HUP INT TERM; while :; do sleep 0.05; done")]
    {
        // Without a shell, lockctl leads the session.
        for with_shell in [true, false] {
            let server = RedisServer::start();
            let line = format!("$L {options} -- sh -c 'echo \"pid\"=$$.; {script}'");
            let mut terminal = if with_shell {
                let mut shell = Terminal::shell(&server);
                shell.press(&format!("{line}\n"));
                shell
            } else {
                Terminal::start(&server, &["sh", "-c", &format!("exec {line}")])
            };
            let command = number(&mut terminal);
            terminal.end();
            until("the command is ended", || !is_alive(command));
            until("the lock is free", || is_free(&server));
        }
    }
}

#[test]
#[limit]
fn a_command_that_ignores_keys_is_ended_from_another_terminal() {
    let server = RedisServer::start();
    let mut shell = Terminal::shell(&server);
    shell.press(
        "$L --grace 100ms -- sh -c 'trap \"\" INT QUIT TSTP TERM; echo \"pid\"=$PPID.; while :; do sleep 0.05; done'\n",
    );
    let lockctl = number(&mut shell);
    for keys in ["\x03", "\x03", "\x1a", "\x1c"] {
        shell.press(keys);
    }
    super::signal(lockctl, "TERM");
    shell.ended_with(137);
    assert!(is_free(&server));
}

/// Where no shell could continue it, Ctrl-Z does nothing.
#[test]
#[limit]
fn ctrl_z_without_job_control_does_nothing() {
    let server = RedisServer::start();
    let mut terminal = Terminal::start(
        &server,
        &["sh", "-c", "$L -- sh -c 'echo \"pid\"=$$.; read word; echo \"got\"=$word'; sleep 600"],
    );
    number(&mut terminal);
    terminal.press("\x1a");
    terminal.press("hello\n");
    terminal.shows("got=hello");
    until("the lock is free", || is_free(&server));
}

/// Returns the lines that a terminal shows after some output. It obeys carriage returns and "erase the rest of the line".
fn drawn(output: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in output.split('\n') {
        let (mut cells, mut at, mut rest) = (Vec::new(), 0, line);
        while let Some(c) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("\u{1b}[K") {
                cells.truncate(at);
                rest = after;
                continue;
            }
            rest = &rest[c.len_utf8()..];
            match c {
                '\r' => at = 0,
                _ => {
                    cells.resize(cells.len().max(at + 1), ' ');
                    cells[at] = c;
                    at += 1;
                }
            }
        }
        lines.push(cells.into_iter().collect());
    }
    lines
}

/// Takes the lock for somebody whose name and reason are longer than the line of a terminal.
fn taken_by_ann(server: &RedisServer) {
    let reason = "a reason that is longer than a line of the terminal".repeat(2);
    lockctl(server, &["acquire", "lock:backup", "--holder", "ann", "--reason", &reason]).assert_code(0);
}

const WAITING: &str = "lockctl: waiting for lock:backup for ";

#[test]
#[limit(120)]
fn a_wait_is_one_line_of_the_terminal_that_is_rewritten_and_removed() {
    let server = RedisServer::start();
    let mut shell = Terminal::shell(&server);
    shell.press("stty cols 100 rows 24\n");
    shell.ended_with(0);
    for (command, granted) in [("$L --wait 1m -- echo \"r\"an", "ran"), ("$A --wait 1m", "lock:backup is held by bob")]
    {
        taken_by_ann(&server);
        shell.press(&format!("{command}\n"));
        let mut output = shell.shows(WAITING) + WAITING;
        // The second message, after ten seconds, overwrites the first.
        output += &(shell.shows(&format!("\r\u{1b}[K{WAITING}1")) + "\r\u{1b}[K" + WAITING + "1");
        output += &(shell.shows("…") + "…");
        let told: Vec<String> = drawn(&output).into_iter().filter(|line| line.starts_with(WAITING)).collect();
        assert_eq!(told.len(), 1, "{output:?}");
        assert!(told[0].chars().count() < 100 && told[0].contains("by lease ann"), "{told:?}");
        lockctl(&server, &["release", "lock:backup", "--holder", "ann"]).assert_code(0);
        output += &(shell.shows(granted) + granted);
        let shown = drawn(&output);
        assert!(shown.last().unwrap() == granted && !shown.iter().any(|line| line.contains(WAITING)), "{output:?}");
        shell.ended_with(0);
        lockctl(&server, &["release", "lock:backup", "--holder", "bob"]);
        assert!(is_free(&server));
    }
}

#[test]
#[limit(120)]
fn a_wait_that_ends_without_the_lock_leaves_only_its_error() {
    let server = RedisServer::start();
    let mut shell = Terminal::shell(&server);
    taken_by_ann(&server);
    for (command, code) in [("$L --wait 2s -- true", 75), ("$A --wait 2s", 75)] {
        shell.press(&format!("stty cols 100 rows 24; {command}; echo \"code\"=$?\n"));
        let output = shell.shows(&format!("code={code}\r\n"));
        assert!(output.contains(WAITING), "{output:?}");
        let shown = drawn(&output);
        assert!(!shown.iter().any(|line| line.contains(WAITING)), "{output:?}");
        assert!(shown.iter().any(|line| line.starts_with("lockctl: ") && line.contains("by lease ann")), "{output:?}");
    }
    // A key ends the wait, and the prompt comes on an empty line.
    shell.press("$L --wait 1m -- true\n");
    let mut output = shell.shows(WAITING) + WAITING;
    shell.press("\x03");
    output += &shell.shows("READY>");
    assert!(!drawn(&output).iter().any(|line| line.contains(WAITING)), "{output:?}");
    shell.ended_with(130);
}

/// Where standard error is not a terminal, each message is a whole line.
#[test]
#[limit(120)]
fn a_wait_is_told_in_plain_lines_where_no_terminal_is() {
    let server = RedisServer::start();
    let mut shell = Terminal::shell(&server);
    taken_by_ann(&server);
    for command in ["$L --wait 2s -- true", "$A --wait 2s"] {
        shell.press(&format!("stty cols 100 rows 24; {command} 2>&1 | cat; echo \"pla\"in\n"));
        let output = shell.shows("plain\r\n");
        let told: Vec<&str> = output.lines().filter(|line| line.starts_with(WAITING)).collect();
        assert_eq!(told.len(), 1, "{output:?}");
        assert!(told[0].contains("; gives up in ") && !output.contains('\u{1b}'), "{output:?}");
        // Keys that are pressed before the prompt are shown before it, and the next line would then begin with the prompt.
        shell.shows("READY>");
    }
}
