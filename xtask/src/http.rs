//! Just enough of a client to read the pages that `go tool trace` serves on this machine.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Status and body of one page.
pub(crate) fn get(address: &str, path: &str) -> Result<(u16, String), String> {
    let failed = |error: std::io::Error| format!("http://{address}{path}: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
    // 1.0: the body ends with the connection and is never chunked.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").map_err(failed)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).map_err(failed)?;
    let reply = String::from_utf8_lossy(&reply);
    let (head, body) = reply.split_once("\r\n\r\n").ok_or_else(|| format!("{path}: no header"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| format!("{path}: no status in {head:?}"))?, body.to_owned()))
}
