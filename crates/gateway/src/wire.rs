//! HTTP/1.1 as it is spoken to a provider: how the head of a request is written, and how an answer is read out of bytes as
//! they come. A link carries one call at a time, so nothing here is shared, queued or sent to another task; bytes go in,
//! pieces come out, and nothing waits.
//!
//! What it must never do: take an answer that was cut for one that ended, or guess where one ends that says it twice.

use std::mem::MaybeUninit;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode};
use httparse::{Header, ParserConfig, Status};
use hyper::ext::ReasonPhrase;
use memchr::memchr;

use crate::limits;

/// The longest line in front of a chunk, with whatever a provider adds to its size.
const CHUNK_LINE_BYTES: usize = 4 * 1_024;

/// Bytes that are no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Begins the head of a request.
pub(crate) fn begin_head(head: &mut Vec<u8>, method: &Method, target: &PathAndQuery) {
    head.extend_from_slice(method.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(target.as_str().as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Writes one header.
pub(crate) fn write_header(head: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    head.extend_from_slice(name.as_str().as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// Ends the head of a request that a body of a known length follows, or none.
pub(crate) fn end_head(head: &mut Vec<u8>, length: Option<usize>) {
    if let Some(length) = length {
        head.extend_from_slice(b"content-length: ");
        head.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    /// Without what says how its body is framed.
    pub answer: Response<()>,
    pub framing: Framing,
    /// Whether another answer may follow on the same connection.
    pub is_kept: bool,
}

/// Takes the head of an answer, once all of it is there. Those that only say that the answer is yet to come are passed over.
pub(crate) fn take_head(bytes: &mut BytesMut, is_asked_for_head: bool) -> Result<Option<Head>, Malformed> {
    while !bytes.is_empty() {
        let mut room = [MaybeUninit::<Header>::uninit(); limits::HEADERS];
        let mut parsed = httparse::Response::new(&mut []);
        let read = ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, bytes, &mut room);
        let length = match read.map_err(|_| Malformed)? {
            Status::Complete(length) => length,
            Status::Partial if bytes.len() > limits::HEAD_BYTES => return Err(Malformed),
            Status::Partial => return Ok(None),
        };
        let head = Head::of(&parsed, is_asked_for_head)?;
        bytes.advance(length);
        match head.answer.status() {
            // Nobody asked for another protocol.
            StatusCode::SWITCHING_PROTOCOLS => return Err(Malformed),
            status if status.is_informational() => {}
            _ => return Ok(Some(head)),
        }
    }
    Ok(None)
}

impl Head {
    fn of(parsed: &httparse::Response<'_, '_>, is_asked_for_head: bool) -> Result<Self, Malformed> {
        let code = parsed.code.ok_or(Malformed)?;
        let status = StatusCode::from_u16(code).map_err(|_| Malformed)?;
        let mut answer = Response::new(());
        *answer.status_mut() = status;
        if let Some(reason) = parsed.reason.filter(|reason| Some(*reason) != status.canonical_reason()) {
            let reason = ReasonPhrase::try_from(reason.as_bytes()).map_err(|_| Malformed)?;
            answer.extensions_mut().insert(reason);
        }
        let is_current = parsed.version == Some(1);
        // What is said of the body of an answer that has none says nothing.
        let has_body = !(is_asked_for_head || status.is_informational() || matches!(code, 204 | 304));
        let (mut is_kept, mut length, mut is_chunked) = (is_current, None, false);
        let mut headers = HeaderMap::with_capacity(parsed.headers.len() + 2);
        for header in parsed.headers.iter() {
            if header.name.eq_ignore_ascii_case(CONTENT_LENGTH.as_str()) {
                for said in header.value.split(|byte| *byte == b',').filter(|_| has_body) {
                    let said = number(said.trim_ascii()).ok_or(Malformed)?;
                    if length.replace(said).is_some_and(|before| before != said) {
                        return Err(Malformed);
                    }
                }
            } else if header.name.eq_ignore_ascii_case(TRANSFER_ENCODING.as_str()) {
                // Anything more would have to be undone here, because it does not pass.
                let is_understood =
                    is_current && !is_chunked && header.value.eq_ignore_ascii_case(b"chunked");
                if has_body && !is_understood {
                    return Err(Malformed);
                }
                is_chunked = has_body;
            } else {
                let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| Malformed)?;
                if name == CONNECTION {
                    let mut words = header.value.split(|byte| *byte == b',');
                    is_kept &= !words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"));
                }
                let value = HeaderValue::from_bytes(header.value).map_err(|_| Malformed)?;
                headers.append(name, value);
            }
        }
        *answer.headers_mut() = headers;
        let framing = match (is_chunked, length) {
            _ if !has_body => Framing::Over,
            (true, _) => Framing::ChunkSize,
            (false, Some(0)) => Framing::Over,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClose,
        };
        // What says its length twice, or not at all, leaves no place to begin the next one at.
        is_kept &= framing != Framing::UntilClose && !(is_chunked && length.is_some());
        Ok(Self { answer, framing, is_kept })
    }
}

/// Digits and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    let is_digits = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_digits)?.parse().ok()
}

/// Where in the body of an answer the next byte is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    /// Behind it.
    Over,
    /// So many bytes in front of its end.
    Length(u64),
    /// In front of a chunk.
    ChunkSize,
    /// So many bytes in front of the end of a chunk.
    Chunk(u64),
    /// Behind the last byte of a chunk.
    ChunkEnd,
    /// Behind the last chunk.
    Trailers,
    /// Anywhere: it ends with the connection.
    UntilClose,
}

/// What comes next of a body.
#[derive(PartialEq, Debug)]
pub(crate) enum Next {
    Piece(Bytes),
    Trailers(HeaderMap),
    Over,
    /// More bytes are needed.
    Unknown,
}

impl Framing {
    /// Takes the next piece of a body.
    pub fn take(&mut self, bytes: &mut BytesMut) -> Result<Next, Malformed> {
        self.skip(bytes)?;
        let most = match self {
            Self::Over => return Ok(Next::Over),
            Self::ChunkSize | Self::ChunkEnd => return Ok(Next::Unknown),
            Self::Trailers => return self.trailers(bytes),
            Self::UntilClose => u64::MAX,
            Self::Length(left) | Self::Chunk(left) => *left,
        };
        if bytes.is_empty() {
            return Ok(Next::Unknown);
        }
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len());
        let left = most - count as u64;
        *self = match *self {
            Self::Length(_) if left == 0 => Self::Over,
            Self::Length(_) => Self::Length(left),
            Self::Chunk(_) if left == 0 => Self::ChunkEnd,
            Self::Chunk(_) => Self::Chunk(left),
            other => other,
        };
        let piece = bytes.split_to(count).freeze();
        // So that the end is known with the last piece; what is wrong there shows when it is asked for.
        let _skipped = self.skip(bytes);
        Ok(Next::Piece(piece))
    }

    /// Passes over what stands between two pieces. Where that is wrong, nothing is.
    fn skip(&mut self, bytes: &mut BytesMut) -> Result<(), Malformed> {
        loop {
            let (next, length) = match self {
                Self::ChunkEnd if bytes.len() >= 2 => {
                    (bytes.starts_with(b"\r\n").then_some(Self::ChunkSize).ok_or(Malformed)?, 2)
                }
                Self::ChunkSize => match chunk_size(bytes)? {
                    Some((0, length)) => (Self::Trailers, length),
                    Some((size, length)) => (Self::Chunk(size), length),
                    None => return Ok(()),
                },
                Self::Trailers if bytes.starts_with(b"\r\n") => (Self::Over, 2),
                _ => return Ok(()),
            };
            *self = next;
            bytes.advance(length);
        }
    }

    fn trailers(&mut self, bytes: &mut BytesMut) -> Result<Next, Malformed> {
        let mut room = [httparse::EMPTY_HEADER; limits::HEADERS];
        let (length, parsed) = match httparse::parse_headers(bytes, &mut room).map_err(|_| Malformed)? {
            Status::Complete(read) => read,
            Status::Partial if bytes.len() > limits::HEAD_BYTES => return Err(Malformed),
            Status::Partial => return Ok(Next::Unknown),
        };
        let mut trailers = HeaderMap::new();
        for header in parsed {
            let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| Malformed)?;
            trailers.append(name, HeaderValue::from_bytes(header.value).map_err(|_| Malformed)?);
        }
        bytes.advance(length);
        *self = Self::Over;
        Ok(Next::Trailers(trailers))
    }
}

/// The size of a chunk and the length of the line that says it, once all of that is there.
fn chunk_size(bytes: &[u8]) -> Result<Option<(u64, usize)>, Malformed> {
    let Some(end) = memchr(b'\n', bytes) else {
        return if bytes.len() > CHUNK_LINE_BYTES { Err(Malformed) } else { Ok(None) };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let mut said = line.split(|byte| *byte == b';').next().unwrap_or_default();
    while let [before @ .., b' ' | b'\t'] = said {
        said = before;
    }
    if said.is_empty() || said.len() > 16 {
        return Err(Malformed);
    }
    let mut size = 0_u64;
    for digit in said {
        let digit = char::from(*digit).to_digit(16).ok_or(Malformed)?;
        size = size << 4 | u64::from(digit);
    }
    Ok(Some((size, end + 1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a whole connection brought, in pieces of a size: the status, the body, and how it went on.
    fn read(text: &str, size: usize, is_asked_for_head: bool) -> Result<String, Malformed> {
        let mut bytes = BytesMut::new();
        let mut rest = text.as_bytes().chunks(size);
        let head = loop {
            if let Some(head) = take_head(&mut bytes, is_asked_for_head)? {
                break head;
            }
            let Some(piece) = rest.next() else { return Ok("no head".to_owned()) };
            bytes.extend_from_slice(piece);
        };
        let Head { answer, mut framing, is_kept } = head;
        let mut said = format!("{} ", answer.status().as_u16()).into_bytes();
        let ending = loop {
            match framing.take(&mut bytes)? {
                Next::Piece(piece) => said.extend_from_slice(&piece),
                Next::Trailers(trailers) => said.extend_from_slice(format!(" and {trailers:?}").as_bytes()),
                Next::Over => break "",
                Next::Unknown => match rest.next() {
                    Some(piece) => bytes.extend_from_slice(piece),
                    None if framing == Framing::UntilClose => break "",
                    None => break ", cut",
                },
            }
        };
        rest.for_each(|piece| bytes.extend_from_slice(piece));
        let behind = if bytes.is_empty() { "" } else { ", more behind" };
        let after = if is_kept { ", kept" } else { ", closed" };
        Ok(format!("{}{ending}{after}{behind}", String::from_utf8_lossy(&said)))
    }

    fn check(is_asked_for_head: bool, text: &str, expected: Result<&str, Malformed>) {
        for size in [1, 2, 7, text.len().max(1)] {
            let got = read(text, size, is_asked_for_head);
            assert_eq!(got.as_deref().map_err(|error| *error), expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn answers_however_they_are_framed() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "200 hello, kept"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\nhello", "200 hello, kept"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5, 5\r\n\r\nhello", "200 hello, kept"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello, you", "200 hello, kept, more behind"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", "200 hell, cut, kept"),
            ("HTTP/1.1 500\r\ncontent-length: 0\r\n\r\n", "500 , kept"),
            ("HTTP/1.1 204 No Content\r\n\r\n", "204 , kept"),
            ("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", "304 , kept"),
            ("HTTP/1.1 304 Not Modified\r\ntransfer-encoding: gzip\r\n\r\n", "304 , kept"),
            ("HTTP/1.1 200 OK\r\n\r\nuntil the end", "200 until the end, closed"),
            ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", "200 x, closed"),
            ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 1\r\n\r\nx", "200 x, closed"),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: \
                 1\r\n\r\nx",
                "200 x, kept",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n00B \t; a=\"b\"\r\n, and more!\r\n0\r\n\r\n",
                "200 hello, and more!, kept",
            ),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "200 hello, cut, kept"),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
                "200 hello, cut, kept",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nCheck: 7\r\n\r\n",
                "200 x and {\"check\": \"7\"}, kept",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
                "200 ab, closed",
            ),
            ("HTTP/1.1 200 OK\r\ncontent-le", "no head"),
            ("", "no head"),
        ] {
            check(false, text, Ok(expected));
        }
        check(true, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", Ok("200 , kept"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Whatever comes, and however it is cut into pieces, is read alike.
        #[test]
        fn pieces_make_no_difference(words in prop::collection::vec(prop::sample::select(WORDS), 0..24), size in 1..16_usize) {
            for begin in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"] {
                let text = format!("{begin}{}", words.concat());
                prop_assert_eq!(read(&text, size, false), read(&text, text.len().max(1), false), "{:?}", text);
            }
        }
    }

    /// What answers are made of.
    const WORDS: &[&str] = &[
        "HTTP/1.1 ",
        "200",
        "100 Continue\r\n\r\n",
        "304",
        " OK",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        "content-length: ",
        "transfer-encoding: chunked",
        "connection: close",
        "a: b",
        ":",
        " ",
        "0",
        "1",
        "5",
        "a",
        "f",
        ";",
        "0\r\n\r\n",
        "1\r\nx\r\n",
        "5\r\nhello\r\n",
        "ffffffffffffffff",
        "\u{fc}",
        "\0",
    ];

    #[test]
    fn what_is_no_answer() {
        let chunked = |rest: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{rest}");
        let headers = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
        for text in [
            "<html>\r\n\r\n".to_owned(),
            "HTTP/2.0 200 OK\r\n\r\n".to_owned(),
            "HTTP/1.1 099 Odd\r\n\r\n".to_owned(),
            "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello".to_owned(),
            "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello".to_owned(),
            "HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\nhello".to_owned(),
            "HTTP/1.1 200 OK\r\ncontent-length: 5,\r\n\r\nhello".to_owned(),
            "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\nhello".to_owned(),
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
            "HTTP/1.1 200 OK\r\na : b\r\n\r\n".to_owned(),
            headers(limits::HEADERS + 1),
            chunked("\r\n"),
            chunked("x\r\n"),
            chunked("-1\r\n"),
            chunked("+1\r\n"),
            chunked("0x1\r\n"),
            chunked(" 1\r\n"),
            chunked("1\nx"),
            chunked("1\r\r\nx"),
            chunked("00000000000000001\r\nx"),
            chunked("1\r\nxy\r\n"),
            chunked("1\r\nxyz0\r\n\r\n"),
            chunked("0\r\nno trailer\r\n\r\n"),
        ] {
            check(false, &text, Err(Malformed));
        }
        check(false, &headers(limits::HEADERS), Ok("200 , closed"));
        let endless = format!("HTTP/1.1 200 OK\r\na: {}", "b".repeat(limits::HEAD_BYTES));
        assert_eq!(read(&endless, endless.len(), false), Err(Malformed));
        let endless = chunked(&format!("1;{}", "a".repeat(CHUNK_LINE_BYTES)));
        assert_eq!(read(&endless, endless.len(), false), Err(Malformed));
    }

    #[test]
    fn the_end_is_known_with_the_last_piece() {
        for (text, framing) in
            [("1\r\nx\r\n0\r\n\r\n", Framing::ChunkSize), ("x", Framing::Length(1)), ("", Framing::Over)]
        {
            let (mut bytes, mut framing) = (BytesMut::from(text), framing);
            while framing.take(&mut bytes) == Ok(Next::Piece(Bytes::from_static(b"x"))) {
                assert_eq!(framing, Framing::Over, "{text:?}");
            }
        }
    }

    #[test]
    fn a_providers_own_words_stay() {
        let mut bytes = BytesMut::from("HTTP/1.1 529 Said\r\nx-odd: a\u{a0}b\r\nx-odd: \r\n\r\n");
        let head = take_head(&mut bytes, false).ok().flatten();
        let answer = head.unwrap_or_else(|| unreachable!("all of it is there")).answer;
        assert_eq!(answer.extensions().get(), Some(&ReasonPhrase::from_static(b"Said")));
        let values: Vec<&[u8]> =
            answer.headers().get_all("x-odd").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(values, ["a\u{a0}b".as_bytes(), b""]);
    }

    #[test]
    fn heads_as_they_are_written() {
        let mut head = Vec::new();
        begin_head(&mut head, &Method::POST, &PathAndQuery::from_static("/v1/messages?beta=true"));
        write_header(&mut head, &CONNECTION, &HeaderValue::from_static("x"));
        end_head(&mut head, Some(0));
        assert_eq!(
            String::from_utf8_lossy(&head),
            "POST /v1/messages?beta=true HTTP/1.1\r\nconnection: x\r\ncontent-length: 0\r\n\r\n"
        );
    }
}
