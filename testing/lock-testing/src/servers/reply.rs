//! A server's replies, read without the client under test.

use std::io::BufRead;

/// A server's reply to [`RedisServer::command`](crate::RedisServer::command).
///
/// See the example of [`RedisServer`](crate::RedisServer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No value: the key does not exist, or the condition did not hold.
    Nil,
    /// A number.
    Int(i64),
    /// A string or a status.
    Text(String),
    /// Several replies.
    List(Vec<Self>),
    /// An error, code first.
    Error(String),
}

impl Reply {
    /// Returns the text of a string.
    ///
    /// # Panics
    ///
    /// Panics if this is another kind of reply.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("the server answered {other:?} where a string was expected"),
        }
    }

    /// Returns the value of a number.
    ///
    /// # Panics
    ///
    /// Panics if this is another kind of reply.
    #[must_use]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            other => panic!("the server answered {other:?} where a number was expected"),
        }
    }

    pub(crate) fn read(stream: &mut impl BufRead) -> std::io::Result<Self> {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let broken = || std::io::Error::other("the answer is cut off");
        let line = line.strip_suffix("\r\n").ok_or_else(broken)?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(broken)?;
        let number = || rest.parse::<i64>().map_err(std::io::Error::other);
        Ok(match kind {
            "+" => Self::Text(rest.to_owned()),
            "-" => Self::Error(rest.to_owned()),
            ":" => Self::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Self::Nil,
                Ok(length) => {
                    let mut text = vec![0; length + 2];
                    stream.read_exact(&mut text)?;
                    text.truncate(length);
                    Self::Text(String::from_utf8_lossy(&text).into_owned())
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Self::Nil,
                Ok(length) => Self::List((0..length).map(|_| Self::read(stream)).collect::<Result<_, _>>()?),
            },
            _ => return Err(std::io::Error::other(format!("an answer of unknown kind: {line}"))),
        })
    }
}
