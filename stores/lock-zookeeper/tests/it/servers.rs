//! Real ZooKeeper servers, as `scripts/need-zookeeper.sh` installs them: one, or an ensemble of three.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lock_testing::{Direction, FaultProxy, free_port, freeze, not_run, thaw};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// The versions that are installed.
pub(crate) const NEWEST: &str = "3.9.5";
pub(crate) const OLDEST: &str = "3.8.0";

/// How long a server may take to start, and an ensemble to agree, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Starts a server. Ends it when standard input ends, even if the test is killed. Removes its folder then, unless it was told
/// to keep it.
const GUARDED: &str = r#"
folder=$1; shift
"$@" >>"$folder/log" 2>&1 &
echo $! >"$folder/pid"
read -r order
kill -KILL $!
wait $!
[ "$order" = keep ] || rm -rf "$folder"
"#;

/// A small virtual machine, and a server that does not wait for the disk.
const JAVA: [&str; 9] = [
    "-Xmx64m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",
];

/// How fast the servers count time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) tick: Duration,
    /// After how many ticks of silence a follower leaves its leader, and a leader its follower.
    pub(crate) sync_limit: u32,
}

impl Pace {
    /// No stall of the machine ends a quorum.
    pub(crate) const PATIENT: Self = Self { tick: Duration::from_millis(200), sync_limit: 100 };

    /// A quorum ends within seconds.
    pub(crate) const FAST: Self = Self { tick: Duration::from_millis(500), sync_limit: 5 };
}

/// What a server is started with besides.
#[derive(Clone, Debug, Default)]
pub(crate) struct More {
    /// Lines of its configuration. `{folder}` is its folder, and `{secure}` a free port.
    pub(crate) lines: String,
    /// Files in its folder, and their texts.
    pub(crate) files: Vec<(&'static str, String)>,
    /// Options of Java.
    pub(crate) java: &'static [&'static str],
}

fn jars(version: &str) -> Option<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = above.map(|above| above.join("target/servers").join(format!("zookeeper-{version}")));
    folders.find(|folder| folder.join("pom.xml").exists())
}

/// Returns whether servers of a version can be started.
pub(crate) fn can_start(version: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_java = std::env::split_paths(&path).any(|folder| folder.join("java").is_file());
    has_java && jars(version).is_some()
}

/// Returns whether servers of a version can be started, and names the test if not.
pub(crate) fn is_installed(version: &str) -> bool {
    let is = can_start(version);
    if !is {
        not_run(&format!("ZooKeeper {version} is not installed; with Java and Maven: sh scripts/need-zookeeper.sh"));
    }
    is
}

/// A server, or an ensemble of three. The third finds the other two through proxies, so it can be cut off from them.
pub(crate) struct Servers {
    members: Vec<Member>,
    ways: Vec<FaultProxy>,
}

impl Servers {
    /// Starts one server with more than it has by default. `None` where ZooKeeper is not installed; the test is then named.
    pub(crate) fn one_with(more: &More) -> Option<Self> {
        is_installed(NEWEST).then(|| Self::start_with(NEWEST, 1, Pace::PATIENT, more))
    }

    /// Starts one server. `None` where ZooKeeper is not installed; the test is then named.
    pub(crate) fn one(pace: Pace) -> Option<Self> {
        is_installed(NEWEST).then(|| Self::start(NEWEST, 1, pace))
    }

    /// Starts three servers. The third is a follower. `None` where ZooKeeper is not installed; the test is then named.
    pub(crate) fn three(pace: Pace) -> Option<Self> {
        is_installed(NEWEST).then(|| Self::start(NEWEST, 3, pace))
    }

    /// Returns servers that tests of this process share. They end with the process.
    pub(crate) fn shared(version: &'static str, count: usize) -> &'static Self {
        static SHARED: Mutex<BTreeMap<(&str, usize), &Servers>> = Mutex::new(BTreeMap::new());
        let mut shared = SHARED.lock().unwrap();
        let new = || -> &'static Self { Box::leak(Box::new(Self::start(version, count, Pace::PATIENT))) };
        let &mut servers = shared.entry((version, count)).or_insert_with(new);
        servers
    }

    fn start(version: &'static str, count: usize, pace: Pace) -> Self {
        Self::start_with(version, count, pace, &More::default())
    }

    fn start_with(version: &'static str, count: usize, pace: Pace, more: &More) -> Self {
        let mut said = String::new();
        for _ in 0..5 {
            // Another process may take a port before a server does.
            match Self::try_start(version, count, pace, more) {
                Ok(servers) => return servers,
                Err(log) => said = log,
            }
        }
        panic!("ZooKeeper {version} does not start; its log:\n{said}");
    }

    fn try_start(version: &'static str, count: usize, pace: Pace, more: &More) -> Result<Self, String> {
        // For the quorum, and for elections.
        let ports: Vec<[u16; 2]> = (0..count).map(|_| [free_port(false), free_port(false)]).collect();
        let mut ways = Vec::new();
        let mut seen_by_third = ports.clone();
        if count == 3 {
            for peer in &mut seen_by_third[..2] {
                for port in peer {
                    let way = FaultProxy::start(*port);
                    *port = way.port();
                    ways.push(way);
                }
            }
        }
        let members = (0..count).map(|at| {
            let peers: &[[u16; 2]] = match (count, at) {
                (1, _) => &[],
                (_, 2) => &seen_by_third,
                _ => &ports,
            };
            Member::new(version, at, peers, pace, more)
        });
        let mut servers = Self { members: members.collect(), ways };
        // The third comes when the others have a leader, so it follows.
        let (first, third) = servers.members.split_at_mut(count.min(2));
        for part in [first, third] {
            part.iter_mut().for_each(Member::launch);
            for member in part {
                if !wait_until(|| member.has_ended() || member.is_ready()) || member.has_ended() {
                    return Err(member.log());
                }
            }
        }
        Ok(servers)
    }

    /// Returns the URL of all servers, with what follows their addresses.
    pub(crate) fn url(&self, rest: &str) -> String {
        self.url_of(0..self.members.len(), rest)
    }

    /// Returns the URL of some of the servers.
    pub(crate) fn url_of(&self, members: impl IntoIterator<Item = usize>, rest: &str) -> String {
        let hosts: Vec<String> = members.into_iter().map(|at| format!("127.0.0.1:{}", self.port(at))).collect();
        format!("zookeeper://{}{rest}", hosts.join(","))
    }

    /// Returns the folder of the first server, and its second port.
    #[allow(dead_code, reason = "only tests of TLS use it")]
    pub(crate) fn secure(&self) -> (&Path, u16) {
        (&self.members[0].folder, self.members[0].secure)
    }

    pub(crate) fn port(&self, member: usize) -> u16 {
        self.members[member].port
    }

    /// Asks a server with a word of four letters. `None` if it does not answer.
    pub(crate) fn ask(&self, member: usize, word: &str) -> Option<String> {
        self.members[member].ask(word)
    }

    /// Returns how many nodes there are.
    pub(crate) fn nodes(&self) -> u64 {
        self.count("srvr", "Node count: ")
    }

    /// Returns how many watches there are.
    pub(crate) fn watches(&self) -> u64 {
        self.count("wchs", "Total watches:")
    }

    fn count(&self, word: &str, what: &str) -> u64 {
        let told = self.ask(0, word).expect("the server answers");
        let count = told.lines().find_map(|line| line.strip_prefix(what));
        count.unwrap_or_else(|| panic!("{told}")).trim().parse().unwrap()
    }

    /// Returns which server leads, as soon as one does.
    pub(crate) fn leader(&self) -> usize {
        let mut leader = None;
        let found = wait_until(|| {
            leader = (0..self.members.len()).find(|at| self.members[*at].is("leader"));
            leader.is_some()
        });
        assert!(found, "no server leads; the log of one:\n{}", self.members[0].log());
        leader.unwrap()
    }

    /// Waits until a server follows a leader.
    pub(crate) fn follows(&self, member: usize) {
        let member = &self.members[member];
        assert!(wait_until(|| member.is("follower")), "it does not follow; its log:\n{}", member.log());
    }

    /// Kills a server, as a machine that loses its power.
    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member].end(true);
    }

    /// Starts a server again that was killed, with its data.
    pub(crate) fn restart(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.launch();
        assert!(wait_until(|| member.is_ready()), "it does not start again; its log:\n{}", member.log());
    }

    pub(crate) fn freeze(&self, member: usize) {
        freeze(self.members[member].pid());
    }

    pub(crate) fn thaw(&self, member: usize) {
        thaw(self.members[member].pid());
    }

    /// Cuts the third server off from the other two. Connections stay open, and clients still reach it.
    pub(crate) fn cut_off(&self) {
        for way in &self.ways {
            way.black_hole(Direction::ToServer);
            way.black_hole(Direction::ToClient);
        }
    }

    /// Ends the cut, and waits until the third server follows again.
    pub(crate) fn heal(&self) {
        self.ways.iter().for_each(FaultProxy::resume);
        self.follows(2);
    }
}

struct Member {
    version: &'static str,
    folder: PathBuf,
    port: u16,
    #[allow(dead_code, reason = "only tests of TLS use it")]
    secure: u16,
    java: &'static [&'static str],
    /// `None` while it is killed.
    guard: Option<Child>,
}

impl Member {
    fn new(version: &'static str, at: usize, peers: &[[u16; 2]], pace: Pace, more: &More) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("lock-zk-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("data")).unwrap();
        let (port, secure, tick) = (free_port(false), free_port(false), pace.tick.as_millis());
        let mut settings = format!(
            "tickTime={tick}\ninitLimit={}\nsyncLimit={}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             maxClientCnxns=0\nminSessionTimeout={}\nmaxSessionTimeout=60000\nadmin.enableServer=false\n\
             4lw.commands.whitelist=*\n",
            pace.sync_limit * 4,
            pace.sync_limit,
            folder.join("data").display(),
            2 * tick,
        );
        for (peer, [quorum, election]) in peers.iter().enumerate() {
            settings += &format!("server.{}=127.0.0.1:{quorum}:{election}\n", peer + 1);
        }
        let place = folder.to_str().unwrap();
        settings += &more.lines.replace("{folder}", place).replace("{secure}", &secure.to_string());
        for (name, text) in &more.files {
            fs::write(folder.join(name), text).unwrap();
        }
        fs::write(folder.join("zoo.cfg"), settings).unwrap();
        fs::write(folder.join("data/myid"), format!("{}\n", at + 1)).unwrap();
        Self { version, folder, port, secure, java: more.java, guard: None }
    }

    fn launch(&mut self) {
        let _ = fs::remove_file(self.folder.join("pid"));
        let jars = jars(self.version).expect("it is installed").join("*");
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARDED, "guard"]).arg(&self.folder).arg("java").args(JAVA).args(self.java);
        guard.arg("-cp").arg(jars);
        guard.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(self.folder.join("zoo.cfg"));
        guard.current_dir(&self.folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        self.guard = Some(guard.spawn().unwrap());
    }

    fn pid(&self) -> u32 {
        let mut pid = None;
        wait_until(|| {
            let written = fs::read_to_string(self.folder.join("pid")).unwrap_or_default();
            pid = written.strip_suffix('\n').and_then(|pid| pid.parse().ok());
            pid.is_some()
        });
        pid.expect("a server that runs has an id")
    }

    /// Returns whether the process has ended by itself. Its guard has not asked for its end yet.
    fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'))
    }

    fn ask(&self, word: &str) -> Option<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect_timeout(&address, SECOND).ok()?;
        stream.set_read_timeout(Some(2 * SECOND)).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut told = Vec::new();
        stream.read_to_end(&mut told).ok()?;
        Some(String::from_utf8_lossy(&told).into_owned())
    }

    fn is(&self, mode: &str) -> bool {
        self.ask("srvr").is_some_and(|told| told.lines().any(|line| line.strip_prefix("Mode: ") == Some(mode)))
    }

    /// Returns whether it serves clients. A server of another test could have the same port, and works in another folder.
    fn is_ready(&self) -> bool {
        let own = self.folder.file_name().unwrap().to_str().unwrap();
        ["standalone", "leader", "follower"].iter().any(|mode| self.is(mode))
            && self.ask("envi").is_some_and(|told| told.contains(own))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn end(&mut self, keeps_folder: bool) {
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

impl Drop for Member {
    fn drop(&mut self) {
        self.end(false);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Checks a condition every few milliseconds, until it holds or [`PATIENCE`] ends.
#[allow(clippy::disallowed_methods, reason = "tests live in real time, also those of other crates")]
fn wait_until(mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(20 * MS);
    }
    true
}
