//! A Redis client of the simplest kind, which asks for the truth without going through Tenure.
//!
//! It blocks, has one connection and a time limit, and shares no line of code with the engine, so
//! that a fault of the engine's cannot hide itself.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Nil,
    /// A number.
    Int(i64),
    /// A status or a string; bytes that are no UTF-8 are replaced.
    Text(String),
    /// Several answers.
    List(Vec<Value>),
    /// The server refused.
    Refused(String),
}

impl Value {
    /// The text, if it is one.
    #[must_use]
    pub fn text(self) -> Option<String> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// The number, if it is one.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        if let Value::Int(number) = self { Some(*number) } else { None }
    }

    /// The texts of a list.
    #[must_use]
    pub fn texts(self) -> Vec<String> {
        if let Value::List(list) = self {
            list.into_iter().filter_map(Value::text).collect()
        } else {
            Vec::new()
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Raw {
    stream: BufReader<TcpStream>,
}

impl Raw {
    /// Connects, logs in if a password is given, and chooses a database.
    ///
    /// # Errors
    /// If the server cannot be reached within `limit`, or refuses.
    pub fn connect(
        address: SocketAddr,
        password: Option<&str>,
        database: u8,
        limit: Duration,
    ) -> io::Result<Raw> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        let mut raw = Raw { stream: BufReader::new(stream) };
        if let Some(password) = password {
            raw.demand(&["AUTH", password])?;
        }
        if database != 0 {
            raw.demand(&["SELECT", &database.to_string()])?;
        }
        Ok(raw)
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// If the connection fails or the time limit is over. A refusal by the server is a [`Value`].
    pub fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    /// As [`ask`](Raw::ask), and a refusal is an error.
    ///
    /// # Errors
    /// As `ask`, and if the server refuses.
    pub fn demand(&mut self, words: &[&str]) -> io::Result<Value> {
        match self.ask(words)? {
            Value::Refused(reason) => Err(io::Error::other(format!("{}: {reason}", words[0]))),
            value => Ok(value),
        }
    }

    fn answer(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(line))?;
        let number = || rest.parse::<i64>().map_err(|_| malformed(line));
        Ok(match kind {
            "+" => Value::Text(rest.to_owned()),
            "-" => Value::Refused(rest.to_owned()),
            ":" => Value::Int(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Value::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Value::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
            },
            "*" => match number()? {
                ..0 => Value::Nil,
                length => Value::List((0..length).map(|_| self.answer()).collect::<io::Result<_>>()?),
            },
            _ => return Err(malformed(line)),
        })
    }
}

fn malformed(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an answer of a Redis server: {line:?}"))
}
