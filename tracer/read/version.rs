//! The versions of the format, and the header that tells them apart.

use super::error::Error;

/// A version of the v2 format, named after the Go that introduced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// The first.
    Go122,
    /// Coroutine switches, statuses with stacks, experiments.
    Go123,
    /// Sync batches with clock snapshots.
    Go125,
    /// EndOfGeneration. What gort writes.
    Go126,
}

impl Version {
    /// The length of every header.
    pub const HEADER_BYTES: usize = 16;

    /// The version that a file with these first bytes has.
    pub fn from_header(header: &[u8]) -> Result<Version, Error> {
        let minor = header
            .strip_prefix(b"go 1.")
            .and_then(|rest| rest.strip_suffix(b"\0\0\0"))
            .map(|rest| rest.strip_suffix(b"\0").unwrap_or(rest)) // Before Go 1.10 the number had one digit.
            .and_then(|rest| rest.strip_suffix(b" trace"))
            .filter(|digits| digits.iter().all(u8::is_ascii_digit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| digits.parse::<u32>().ok())
            .filter(|_| header.len() == Version::HEADER_BYTES)
            .ok_or(Error::NotATrace)?;
        Version::from_minor(minor).ok_or(Error::Version(minor))
    }

    /// The version whose header has the most bytes in common with this; of several the newest.
    pub(super) fn nearest(header: &[u8; Version::HEADER_BYTES]) -> Version {
        let versions = [Version::Go122, Version::Go123, Version::Go125, Version::Go126];
        let common = |version: Version| version.header().iter().zip(header).filter(|(a, b)| a == b).count();
        versions.into_iter().max_by_key(|&version| (common(version), version)).unwrap_or(Version::Go126)
    }

    /// The version that Go 1.`minor` introduced, if it did.
    pub fn from_minor(minor: u32) -> Option<Version> {
        match minor {
            22 => Some(Version::Go122),
            23 => Some(Version::Go123),
            25 => Some(Version::Go125),
            26 => Some(Version::Go126),
            _ => None,
        }
    }

    /// The header of a file of this version.
    pub fn header(self) -> [u8; Version::HEADER_BYTES] {
        let mut header = crate::wire::HEADER;
        let minor = self.minor() as u8;
        (header[5], header[6]) = (b'0' + minor / 10, b'0' + minor % 10);
        header
    }

    /// The 1.N of its Go.
    pub fn minor(self) -> u32 {
        match self {
            Version::Go122 => 22,
            Version::Go123 => 23,
            Version::Go125 => 25,
            Version::Go126 => 26,
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "go 1.{}", self.minor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_told_apart() {
        assert!(matches!(Version::from_header(&crate::wire::HEADER), Ok(Version::Go126)));
        assert!(matches!(Version::from_header(b"go 1.22 trace\0\0\0"), Ok(Version::Go122)));
        assert!(matches!(Version::from_header(b"go 1.21 trace\0\0\0"), Err(Error::Version(21))));
        assert!(matches!(Version::from_header(b"go 1.99 trace\0\0\0"), Err(Error::Version(99))));
        assert!(matches!(Version::from_header(b"go 1.7 trace\0\0\0\0"), Err(Error::Version(7))));
        for version in [Version::Go122, Version::Go123, Version::Go125, Version::Go126] {
            assert_eq!(Version::from_header(&version.header()).ok(), Some(version));
            assert_eq!(Version::from_minor(version.minor()), Some(version));
        }
        for other in [
            &b"go 1.26 trace\0\0"[..],
            b"go 1.26 trace\0\0x",
            b"",
            b"go 1. trace\0\0\0",
            b"\x7fELF",
            b"go 1.+6 trace\0\0\0",
        ] {
            assert!(matches!(Version::from_header(other), Err(Error::NotATrace)));
        }
    }
}
