//! A TCP proxy that delays what passes, each way and in order: a network with a round trip.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::{Result, stats};

/// A proxy in a process of its own, so that its work counts for neither side.
pub(crate) struct Proxy {
    process: Child,
    pub(crate) port: u16,
    /// The median of the round trips measured through it.
    pub(crate) round_trip: Duration,
}

impl Proxy {
    /// Starts a proxy before a server.
    pub(crate) fn start(upstream: u16, one_way: Duration) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["delay", "--upstream", &upstream.to_string(), "--micros", &one_way.as_micros().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("the proxy has no output")?).read_line(&mut line)?;
        let port = line.trim().parse().map_err(|_| "the proxy did not start")?;
        let mut proxy = Self { process, port, round_trip: Duration::ZERO };
        proxy.round_trip = round_trip(port)?;
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn round_trip(port: u16) -> Result<Duration> {
    let mut connection = redis::Client::open(("127.0.0.1", port))?.get_connection()?;
    let mut trips = Vec::new();
    for _ in 0..20 {
        let sent = std::time::Instant::now();
        redis::cmd("PING").exec(&mut connection)?;
        trips.push(sent.elapsed().as_secs_f64());
    }
    Ok(Duration::from_secs_f64(stats::median(trips).unwrap_or(0.0)))
}

/// Runs the proxy until the input ends. Prints its port.
pub(crate) fn run(upstream: u16, one_way: Duration) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
    println!("{}", listener.local_addr()?.port());
    std::io::stdout().flush()?;
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    runtime.block_on(async {
        loop {
            let (client, _) = listener.accept().await?;
            tokio::spawn(async move {
                // A broken connection ends both ways; whoever used it notices.
                let _ = serve(client, upstream, one_way).await;
            });
        }
    })
}

async fn serve(client: TcpStream, upstream: u16, one_way: Duration) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", upstream)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        ended = carry(from_client, to_server, one_way) => ended,
        ended = carry(from_server, to_client, one_way) => ended,
    }
}

/// Carries bytes one way, each as much later as the other.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: Duration,
) -> std::io::Result<()> {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 || sender.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, bytes)) = receiver.recv().await {
            sleep_until(due).await;
            to.write_all(&bytes).await?;
        }
        Ok(())
    };
    tokio::select! {
        ended = read => ended,
        ended = write => ended,
    }
}
