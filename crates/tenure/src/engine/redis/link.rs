//! Making a connection: the line, the login, and the checks that come before the first request.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, WriteHalf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};
use tokio_rustls::client::TlsStream;

use super::names;
use super::options::{Credentials, Options};
use super::refusal::{is_no_script, refusal};
use super::scripts::{PROBE, RAISE};
use super::wire::{Encoder, Incoming, Value};
use crate::error::{Error, ErrorKind, Result};

/// The oldest server that has all that is needed.
const OLDEST_SERVER: (u32, u32) = (6, 2);

/// The side of a line that is read, with what arrived on it and was not taken yet.
pub(super) struct Link {
    reader: Box<dyn AsyncRead + Unpin + Send>,
    pub(super) incoming: Incoming,
    /// The socket, where somebody else may be writing when the line is given up.
    socket: Option<OwnedFd>,
}

/// From now on nothing more gets through, not even from a caller that was stopped before its write: its
/// request is being undone.
impl Drop for Link {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    fn new(reader: impl AsyncRead + Unpin + Send + 'static, socket: Option<OwnedFd>) -> Link {
        Link { reader: Box::new(reader), incoming: Incoming::new(), socket }
    }

    /// Reads what there is; ready with 0 at the end of the line.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = ReadBuf::new(self.incoming.space());
        match Pin::new(&mut *self.reader).poll_read(cx, &mut space) {
            Poll::Ready(Ok(())) => {
                let count = space.filled().len();
                self.incoming.filled(count);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// The side of a line that is written.
#[derive(Debug)]
pub(super) enum Writer {
    Plain(tcp::OwnedWriteHalf),
    Local(unix::OwnedWriteHalf),
    Tls(Box<WriteHalf<TlsStream<TcpStream>>>),
}

impl Writer {
    /// Whether [`write_now`](Writer::write_now) may do.
    pub(super) fn takes_at_once(&self) -> bool {
        matches!(self, Writer::Plain(_) | Writer::Local(_))
    }

    /// Writes without waiting, on any thread.
    pub(super) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Writer::Plain(stream) => stream.try_write(bytes),
            Writer::Local(stream) => stream.try_write(bytes),
            Writer::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn stream(&mut self) -> Pin<&mut (dyn AsyncWrite + Unpin + Send)> {
        match self {
            Writer::Plain(stream) => Pin::new(stream),
            Writer::Local(stream) => Pin::new(stream),
            Writer::Tls(stream) => Pin::new(stream),
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stream = self.stream();
        stream.write_all(bytes).await?;
        stream.flush().await
    }
}

/// A connection that passed its checks.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) link: Link,
    pub(super) writer: Writer,
    /// The counter of tokens at its beginning: a number not above it is no grant (R6).
    pub(super) floor: u64,
    /// Messages that came during the checks.
    pub(super) early: Vec<Value>,
}

/// Connects `within` that time, logs in, subscribes to `channel` if there is one, checks rights.
pub(super) async fn establish(
    options: &Options,
    channel: Option<&[u8]>,
    within: Duration,
) -> Result<Established> {
    let late = || {
        let what = format!("{} did not answer within {within:?}", options.place());
        let check = match (&options.socket, &options.tls) {
            (Some(_), _) => "check the path, and that the server runs",
            (None, Some(_)) => "check host and port, and that this is a TLS port",
            (None, None) => "check host and port, and that this is not a TLS port",
        };
        Error::new(ErrorKind::Unavailable, what).advice(check)
    };
    let result = tokio::time::timeout(within, async {
        let (link, writer) = open_line(options).await?;
        Dialog { link, writer, early: Vec::new() }.run(options, channel).await
    });
    result.await.unwrap_or_else(|_| Err(late())).map_err(|error| error.engine("redis").operation("connect"))
}

fn broken(options: &Options) -> impl FnOnce(io::Error) -> Error {
    let what = format!("{} cannot be reached: ", options.place());
    let where_it_is = if options.socket.is_some() { "the path" } else { "host and port" };
    move |error| {
        Error::new(ErrorKind::Unavailable, format!("{what}{error}"))
            .advice(format!("check {where_it_is}, and that the server runs"))
            .source_error(error)
    }
}

/// A line to a server of this machine.
async fn open_local(options: &Options, path: &Path) -> Result<(Link, Writer)> {
    if options.tls.is_some() {
        return Err(Error::new(ErrorKind::Invalid, "a socket on this machine has no TLS"));
    }
    let stream = UnixStream::connect(path).await.map_err(|error| no_socket(options, path, error))?;
    let socket = stream.as_fd().try_clone_to_owned().map_err(broken(options))?;
    let (reader, writer) = stream.into_split();
    Ok((Link::new(reader, Some(socket)), Writer::Local(writer)))
}

fn no_socket(options: &Options, path: &Path, error: io::Error) -> Error {
    let shown = path.display();
    let (kind, what, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied => (
            ErrorKind::Denied,
            format!("{shown} may not be opened: {error}"),
            "let this user enter its folder and write to it (unixsocketperm)",
        ),
        io::ErrorKind::InvalidInput => (
            ErrorKind::Invalid,
            format!("{shown} cannot be a socket's path: {error}"),
            "choose a shorter path",
        ),
        // The system says of a file what it says of a socket that nobody listens on.
        io::ErrorKind::ConnectionRefused if !is_socket(path) => {
            (ErrorKind::Invalid, format!("{shown} is not a socket"), "name the server's unixsocket")
        }
        _ => return broken(options)(error),
    };
    Error::new(kind, what).advice(advice).source_error(error)
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.file_type().is_socket())
}

async fn open_line(options: &Options) -> Result<(Link, Writer)> {
    if let Some(path) = &options.socket {
        return open_local(options, path).await;
    }
    let stream = TcpStream::connect((options.host.as_str(), options.port)).await.map_err(broken(options))?;
    stream.set_nodelay(true).map_err(broken(options))?;
    let Some(config) = &options.tls else {
        let socket = stream.as_fd().try_clone_to_owned().map_err(broken(options))?;
        let (reader, writer) = stream.into_split();
        return Ok((Link::new(reader, Some(socket)), Writer::Plain(writer)));
    };
    let connector = tokio_rustls::TlsConnector::from(config.clone());
    let stream = connector.connect(options.server_name()?, stream).await.map_err(|error| {
        broken(options)(error).advice("check that the server speaks TLS on this port, and its certificate")
    })?;
    let (reader, writer) = tokio::io::split(stream);
    // There only the connection's task writes.
    Ok((Link::new(reader, None), Writer::Tls(Box::new(writer))))
}

struct Dialog {
    link: Link,
    writer: Writer,
    early: Vec<Value>,
}

impl Dialog {
    async fn run(mut self, options: &Options, channel: Option<&[u8]>) -> Result<Established> {
        self.hello(options).await?;
        if options.database != 0 {
            let mut select = Encoder::default();
            select.command(2).word(b"SELECT").number(u64::from(options.database));
            needs(options, self.ask(options, select).await?, "SELECT")?;
        }
        let run_id = self.server(options).await?;
        if let Some(channel) = channel {
            self.subscribe(options, channel).await?;
            self.probe(options, channel).await?;
        }
        let floor = self.raise(options, &run_id).await?;
        Ok(Established { link: self.link, writer: self.writer, floor, early: self.early })
    }

    async fn send(&mut self, options: &Options, command: Encoder) -> Result<()> {
        self.writer.write_all(&command.into_bytes()).await.map_err(broken(options))
    }

    async fn receive(&mut self, options: &Options) -> Result<Value> {
        loop {
            let next = self.link.incoming.next().map_err(|nonsense| {
                Error::new(ErrorKind::Internal, nonsense.0).advice("check that this is a Redis server")
            })?;
            if let Some(value) = next {
                return Ok(value);
            }
            let count = self.link.reader.read(self.link.incoming.space()).await.map_err(broken(options))?;
            if count == 0 {
                return Err(broken(options)(io::ErrorKind::UnexpectedEof.into()));
            }
            self.link.incoming.filled(count);
        }
    }

    async fn ask(&mut self, options: &Options, command: Encoder) -> Result<Value> {
        self.send(options, command).await?;
        loop {
            match self.receive(options).await? {
                push @ Value::Push(_) => self.early.push(push),
                reply => return Ok(reply),
            }
        }
    }

    async fn hello(&mut self, options: &Options) -> Result<()> {
        let credentials = (options.credentials)();
        let mut hello = Encoder::default();
        match &credentials {
            None => hello.command(4).word(b"HELLO").word(b"3"),
            Some(it) => hello
                .command(7)
                .word(b"HELLO")
                .word(b"3")
                .word(b"AUTH")
                .word(it.user.as_deref().unwrap_or("default").as_bytes())
                .word(it.password.as_bytes()),
        };
        hello.word(b"SETNAME").word(b"tenure");
        match self.ask(options, hello).await? {
            Value::Error(text) if text.starts_with("NOPROTO") || text.contains("unknown command") => {
                Err(old(None))
            }
            // Before the login the server says NOAUTH to a HELLO without one.
            Value::Error(text) if text.starts_with("NOAUTH") => {
                Err(Error::new(ErrorKind::Denied, "the server wants a password")
                    .advice("write it into the URL"))
            }
            Value::Error(text) if text.contains("max number of clients") => {
                Err(Error::new(ErrorKind::Unavailable, "the server has no connection left"))
            }
            // Some servers and proxies repeat the words of what they refuse.
            Value::Error(text) => Err(refusal(&hide(&text, credentials.as_ref()))),
            _ => Ok(()),
        }
    }

    /// Checks the version; the run id of the server at the other end of this very connection.
    async fn server(&mut self, options: &Options) -> Result<String> {
        let mut info = Encoder::default();
        info.command(2).word(b"INFO").word(b"server");
        let answer = needs(options, self.ask(options, info).await?, "INFO")?;
        let text = answer.text().map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default();
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let version = field("redis_version").unwrap_or_default();
        let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST_SERVER {
            return Err(old(Some(version)));
        }
        match field("run_id") {
            Some(run_id) if !run_id.is_empty() => Ok(run_id.to_owned()),
            _ => Err(Error::new(
                ErrorKind::Unsupported,
                "INFO does not tell the server's run id, on which tokens rest",
            )),
        }
    }

    async fn subscribe(&mut self, options: &Options, channel: &[u8]) -> Result<()> {
        let mut subscribe = Encoder::default();
        subscribe.command(2).word(b"SUBSCRIBE").word(channel);
        self.send(options, subscribe).await?;
        loop {
            match self.receive(options).await? {
                Value::Push(items) if items.first().and_then(Value::text) == Some(b"subscribe") => {
                    return Ok(());
                }
                push @ Value::Push(_) => self.early.push(push),
                reply => {
                    needs(options, reply, "SUBSCRIBE")?;
                    return Err(Error::new(ErrorKind::Internal, "SUBSCRIBE was answered by something else"));
                }
            }
        }
    }

    /// Tries all that the scripts use, so that a missing right is named now and not under a lock.
    async fn probe(&mut self, options: &Options, channel: &[u8]) -> Result<()> {
        let mut probe = Encoder::default();
        PROBE.call_in_full(&mut probe, 1);
        for helper in [&b"}:lock"[..], b"}:queue", b"}:entries"] {
            probe.parts(&[options.prefix.as_bytes(), b"tenure:{probe", helper]);
        }
        probe.word(&names::counter(&options.prefix)).word(channel);
        let answer = needs(options, self.ask(options, probe).await?, "EVAL")?;
        let said = answer.text().map(String::from_utf8_lossy).unwrap_or_default();
        let Some((command, refused)) = said.split_once(' ') else { return Ok(()) };
        // What passes (memory, a replica, a server that cannot save) is no missing right.
        let error = refusal(refused);
        if error.kind() != ErrorKind::Denied {
            return Err(error);
        }
        Err(missing(command, &right(options, command, refused), refused))
    }

    async fn raise(&mut self, options: &Options, run_id: &str) -> Result<u64> {
        let arguments = |encoder: &mut Encoder| {
            encoder.word(&names::counter(&options.prefix)).word(&names::counter_run(&options.prefix));
            encoder.word(run_id.as_bytes());
        };
        let mut by_hash = Encoder::default();
        RAISE.call(&mut by_hash, 1);
        arguments(&mut by_hash);
        let mut answer = self.ask(options, by_hash).await?;
        if matches!(&answer, Value::Error(text) if is_no_script(text)) {
            let mut in_full = Encoder::default();
            RAISE.call_in_full(&mut in_full, 1);
            arguments(&mut in_full);
            answer = self.ask(options, in_full).await?;
        }
        let answer = needs(options, answer, "EVALSHA")?;
        answer
            .text()
            .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok())
            .filter(|floor| *floor < crate::Token::RAW_END)
            .ok_or_else(|| {
                Error::new(ErrorKind::Internal, format!("the counter of tokens answered {answer:?}"))
            })
    }
}

fn hide(text: &str, credentials: Option<&Credentials>) -> String {
    match credentials {
        Some(it) if !it.password.is_empty() => text.replace(&it.password, "(hidden)"),
        _ => text.to_owned(),
    }
}

fn old(version: Option<&str>) -> Error {
    let what = match version {
        Some(version) => format!("the server's version is \"{}\"", version.escape_debug()),
        None => "the server does not speak RESP3".to_owned(),
    };
    Error::new(ErrorKind::Unsupported, what).advice("Redis 6.2 or newer is needed")
}

fn missing(what: &str, right: &str, refused: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("the user may not use {what}: {}", refused.escape_debug()))
        .advice(format!("run ACL SETUSER <name> {right}"))
}

/// The right that a refusal is about: a pattern of keys or channels, or else the command itself.
fn right(options: &Options, command: &str, refused: &str) -> String {
    if refused.contains("key") {
        format!("~{}tenure:*", options.prefix)
    } else if refused.contains("channel") {
        format!("&{}tenure:*", options.prefix)
    } else {
        format!("+{}", command.to_lowercase())
    }
}

/// The answer to a command that the user must be allowed to use.
fn needs(options: &Options, answer: Value, command: &str) -> Result<Value> {
    match answer {
        Value::Error(text) if text.starts_with("NOPERM") => {
            Err(missing(command, &right(options, command, &text), &text))
        }
        Value::Error(text) => Err(refusal(&text)),
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The superuser, as whom tests may run, is never refused: so the system's answer is given.
    #[test]
    fn a_socket_that_may_not_be_opened_is_denied() {
        let options = Options::from_url("redis+unix:///run/redis.sock").unwrap();
        let path = Path::new("/run/redis.sock");
        let error = no_socket(&options, path, io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(
            error.to_string(),
            "/run/redis.sock may not be opened: permission denied; \
             let this user enter its folder and write to it (unixsocketperm)"
        );
    }
}
