//! One connection to a server, for several commands in a row.

use std::io::{BufReader, Result, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::Reply;
use crate::servers::relative::request;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The connection of another client.
pub(crate) struct Session(BufReader<TcpStream>);

impl Session {
    pub(crate) fn open(port: u16, password: Option<&str>) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut session = Self(BufReader::new(stream));
        if let Some(password) = password {
            session.ask(&["AUTH", password])?;
        }
        Ok(session)
    }

    /// Sends one command.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        self.0.get_mut().write_all(&request(words))?;
        Reply::read(&mut self.0)
    }

    /// Sends one command.
    ///
    /// # Panics
    ///
    /// Panics if the server does not answer within a minute.
    pub(crate) fn command(&mut self, words: &[&str]) -> Reply {
        self.ask(words).unwrap_or_else(|error| panic!("{words:?} got no answer: {error}"))
    }
}
