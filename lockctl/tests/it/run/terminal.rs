//! `lockctl run` at a terminal, with a shell that has job control.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use lock_core::testing::{RedisServer, limit};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::run::{is_alive, is_free, until};

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
        command.env("PS1", "READY>").env("L", format!("{} run lock:backup", env!("CARGO_BIN_EXE_lockctl")));
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

#[test]
#[limit]
fn a_command_reads_from_its_terminal_and_gets_its_keys() {
    let server = RedisServer::start();
    let mut shell = Terminal::shell(&server);
    // The command is in the foreground before its first step.
    shell.press("$L -- sh -c 'ps -o stat= -p $$; read word; echo \"got\"=$word; sleep 600'\n");
    shell.shows("+");
    shell.press("hello\n");
    shell.shows("got=hello");
    shell.press("\x03");
    shell.ended_with(130);
    assert!(is_free(&server));
    // A part of a pipeline that reads keys, as a pager does, keeps the terminal; a command that asks for it gets it.
    shell.press(
        "$L -- sh -c 'echo line; sleep 600' | sh -c 'read line; read key </dev/tty; echo \"$line\"=$key; read all'\n",
    );
    shell.press("q\n");
    shell.shows("line=q");
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
