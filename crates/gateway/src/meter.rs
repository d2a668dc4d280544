//! What an answer says of its tokens, read beside the bytes as they pass. Nothing here can change or delay them.
//!
//! Streams are read line by line and whole answers at their end; compressed ones are unpacked on the side. What is
//! too long to be looked at is passed on all the same, and its tokens stay unknown.

use std::io::Write;
use std::sync::LazyLock;

use brotli_decompressor::DecompressorWriter;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use memchr::memchr;
use memchr::memmem::Finder;

use crate::config::Price;
use crate::limits::{METERED_BYTES, METERED_LINE_BYTES};
use crate::members;

/// The names of what is told.
static USAGE: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"usage\""));
static ERROR: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"error\""));
/// What an overload is called.
static OVERLOADED: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("overloaded_error"));

/// The most tokens of one kind that an answer is believed: far more than any model takes or gives, and few enough that no
/// sum overflows.
const MOST_TOKENS: u64 = 1_000_000_000;

/// Whether an answer in a content coding can be read.
pub(crate) fn reads(coding: &str) -> bool {
    matches!(coding, "" | "identity" | "gzip" | "x-gzip" | "deflate" | "br")
}

/// What was read so far; each number is the largest seen, because streams repeat them as they grow.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    /// Sent, and neither kept nor had before.
    pub input: u64,
    /// Sent and kept by the provider.
    pub cache_write: u64,
    /// Had by the provider before.
    pub cache_read: u64,
    /// Came back.
    pub output: u64,
    /// An overload was told in the middle of a stream.
    pub is_overloaded: bool,
}

impl Reading {
    /// What counts against a provider's input limit.
    pub fn counted_input(&self) -> u64 {
        self.input.saturating_add(self.cache_write)
    }

    /// In billionths of a dollar.
    pub fn cost(&self, price: &Price) -> u64 {
        let write = price.cache_write.unwrap_or(price.input.saturating_mul(5) / 4);
        let read = price.cache_read.unwrap_or(price.input / 10);
        let parts = [
            (self.input, price.input),
            (self.cache_write, write),
            (self.cache_read, read),
            (self.output, price.output),
        ];
        parts.iter().fold(0, |sum: u64, (tokens, each)| sum.saturating_add(tokens.saturating_mul(*each)))
    }

    /// Takes in an answer or an event of either API. Anthropic's first event has it all inside, and so have OpenAI's
    /// last ones.
    fn see(&mut self, text: &[u8]) {
        // Of what is no object nothing is known.
        let _is_object = members::each(text, |name, value| match name {
            b"message" | b"response" => {
                let _is_object = members::each(value, |name, value| self.see_member(name, value));
            }
            _ => self.see_member(name, value),
        });
    }

    /// Takes in a whole answer. Mostly its usage stands near its end, and of what is in front of it nothing need be known.
    fn see_whole(&mut self, text: &[u8]) {
        match members::last(text, &USAGE).filter(|_| OVERLOADED.find(text).is_none()) {
            Some(usage) => self.see_usage(usage),
            None => self.see(text),
        }
    }

    fn see_member(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"usage" => self.see_usage(value),
            // Hardly any answer has one that is not null.
            b"error" => {
                let _is_object = members::each(value, |name, value| {
                    let is_overload = || members::text(value).is_some_and(|kind| kind == "overloaded_error");
                    self.is_overloaded |= name == b"type" && is_overload();
                });
            }
            _ => {}
        }
    }

    fn see_usage(&mut self, text: &[u8]) {
        let mut usage = Usage::default();
        if !members::each(text, |name, value| usage.see(name, value)) {
            return;
        }
        let Usage { input, output, cache_write, cache_read, cached } = usage;
        self.input = self.input.max(input.saturating_sub(cached));
        self.cache_write = self.cache_write.max(cache_write);
        self.cache_read = self.cache_read.max(cache_read.unwrap_or(cached));
        self.output = self.output.max(output);
    }
}

/// What one report says.
#[derive(Default)]
struct Usage {
    input: u64,
    output: u64,
    cache_write: u64,
    cache_read: Option<u64>,
    /// Part of the input.
    cached: u64,
}

fn tokens(value: &[u8]) -> Option<u64> {
    members::number(value).map(|number| number.min(MOST_TOKENS))
}

impl Usage {
    fn see(&mut self, name: &[u8], value: &[u8]) {
        let number = || tokens(value).unwrap_or(0);
        match name {
            b"input_tokens" | b"prompt_tokens" => self.input = self.input.max(number()),
            b"output_tokens" | b"completion_tokens" => self.output = self.output.max(number()),
            b"cache_creation_input_tokens" => self.cache_write = number(),
            b"cache_read_input_tokens" => self.cache_read = tokens(value),
            b"prompt_tokens_details" | b"input_tokens_details" => {
                let _is_object = members::each(value, |name, value| {
                    if name == b"cached_tokens" {
                        self.cached = self.cached.max(tokens(value).unwrap_or(0));
                    }
                });
            }
            _ => {}
        }
    }
}

/// Reads an answer as it passes.
pub(crate) enum Meter {
    Off(Reading),
    Plain(Reader),
    Gzip(Box<MultiGzDecoder<Reader>>),
    Deflate(Box<ZlibDecoder<Reader>>),
    Brotli(Box<DecompressorWriter<Reader>>),
}

impl Meter {
    /// For an answer that says nothing of tokens.
    pub fn off() -> Self {
        Self::Off(Reading::default())
    }

    /// Whether an answer with these headers can say what it used.
    pub fn can_read(headers: &HeaderMap) -> bool {
        !matches!(Self::of(headers), Self::Off(_))
    }

    /// For an answer with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let text = |name| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().trim().to_ascii_lowercase()
        };
        let kind = text(CONTENT_TYPE);
        let is_stream = kind.starts_with("text/event-stream");
        if !is_stream && !kind.starts_with("application/json") {
            return Self::off();
        }
        let reader = Reader { is_stream, kept: Vec::new(), is_too_long: false, reading: Reading::default() };
        match text(CONTENT_ENCODING).as_str() {
            "" | "identity" => Self::Plain(reader),
            "gzip" | "x-gzip" => Self::Gzip(Box::new(MultiGzDecoder::new(reader))),
            "deflate" => Self::Deflate(Box::new(ZlibDecoder::new(reader))),
            "br" => Self::Brotli(Box::new(DecompressorWriter::new(reader, 4_096))),
            _ => Self::off(),
        }
    }

    /// The next piece.
    pub fn feed(&mut self, bytes: &[u8], is_last: bool) {
        let fed = match self {
            Self::Off(_) => Ok(()),
            // Most answers come in one piece, which need not be kept.
            Self::Plain(reader) if is_last && reader.is_at_its_start() => {
                reader.reading.see_whole(bytes);
                Ok(())
            }
            Self::Plain(reader) => reader.write_all(bytes),
            Self::Gzip(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Self::Deflate(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Self::Brotli(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
        };
        // What cannot be unpacked is the client's to complain about.
        if fed.is_err() {
            *self = Self::Off(self.reading().clone());
        }
    }

    /// There is no more.
    pub fn finish(&mut self) {
        match self {
            Self::Off(_) => {}
            Self::Plain(reader) => reader.finish(),
            Self::Gzip(decoder) => decoder.get_mut().finish(),
            Self::Deflate(decoder) => decoder.get_mut().finish(),
            Self::Brotli(decoder) => decoder.get_mut().finish(),
        }
    }

    /// What was read so far.
    pub fn reading(&self) -> &Reading {
        match self {
            Self::Off(reading) => reading,
            Self::Plain(reader) => &reader.reading,
            Self::Gzip(decoder) => &decoder.get_ref().reading,
            Self::Deflate(decoder) => &decoder.get_ref().reading,
            Self::Brotli(decoder) => &decoder.get_ref().reading,
        }
    }
}

/// Finds usage in plain text.
pub(crate) struct Reader {
    is_stream: bool,
    /// The line that has not ended yet, or the whole answer so far.
    kept: Vec<u8>,
    is_too_long: bool,
    reading: Reading,
}

impl Reader {
    /// Whether nothing of a whole answer came yet.
    fn is_at_its_start(&self) -> bool {
        !self.is_stream && self.kept.is_empty() && !self.is_too_long
    }

    fn keep(&mut self, bytes: &[u8]) {
        let most = if self.is_stream { METERED_LINE_BYTES } else { METERED_BYTES };
        if self.is_too_long || self.kept.len() + bytes.len() > most {
            self.is_too_long = true;
            self.kept = Vec::new();
        } else {
            self.kept.extend_from_slice(bytes);
        }
    }

    fn finish(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        if self.is_stream { self.line(&kept) } else { self.reading.see_whole(&kept) }
    }

    fn line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else { return };
        if USAGE.find(data).is_some() || ERROR.find(data).is_some() {
            self.reading.see(data);
        }
    }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if !self.is_stream {
            self.keep(bytes);
            return Ok(bytes.len());
        }
        let mut rest = bytes;
        while let Some(end) = memchr(b'\n', rest) {
            if self.kept.is_empty() && !self.is_too_long {
                self.line(&rest[..end]);
            } else {
                self.keep(&rest[..end]);
                let line = std::mem::take(&mut self.kept);
                self.line(&line);
                self.is_too_long = false;
            }
            rest = &rest[end + 1..];
        }
        self.keep(rest);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(kind: &'static str, encoding: &'static str) -> Meter {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
        headers.insert(CONTENT_ENCODING, http::HeaderValue::from_static(encoding));
        Meter::of(&headers)
    }

    fn reading(numbers: [u64; 4]) -> Reading {
        let [input, cache_write, cache_read, output] = numbers;
        Reading { input, cache_write, cache_read, output, is_overloaded: false }
    }

    const ANTHROPIC_STREAM: &str = concat!(
        ": a comment\n\nevent: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"opus\",",
        "\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":7,\"cache_read_input_tokens\":100,",
        "\"output_tokens\":1}}}\r\n\r\nevent: ping\ndata: {\"type\":\"ping\"}\n\n",
        "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"the usage of words\"}}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n",
    );

    #[test]
    fn both_apis_streamed_and_whole() {
        let chat = "data: {\"model\":\"gpt\",\"choices\":[],\"usage\":null}\n\ndata: {\"model\":\"gpt\",\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";
        let responses = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"gpt\",\"usage\":{\"input_tokens\":12,\"input_tokens_details\":{\"cached_tokens\":2},\"output_tokens\":3}}}\n\n";
        let whole =
            r#"{"type":"message","model":"opus","content":[],"usage":{"input_tokens":9,"output_tokens":2}}"#;
        for (kind, text, expected) in [
            ("text/event-stream; charset=utf-8", ANTHROPIC_STREAM, reading([25, 7, 100, 15])),
            ("text/event-stream", chat, reading([8, 0, 4, 3])),
            ("text/event-stream", responses, reading([10, 0, 2, 3])),
            ("application/json", whole, reading([9, 0, 0, 2])),
        ] {
            for size in [1, 7, text.len()] {
                let mut meter = meter(kind, "identity");
                let count = text.len().div_ceil(size);
                let pieces = text.as_bytes().chunks(size).enumerate();
                pieces.for_each(|(at, piece)| meter.feed(piece, at + 1 == count));
                meter.finish();
                assert_eq!(*meter.reading(), expected, "{kind} in pieces of {size}");
            }
        }
    }

    #[test]
    fn compressed_answers_are_read_as_they_pass() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(ANTHROPIC_STREAM.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let packed = gzip.finish().unwrap_or_else(|error| panic!("{error}"));
        let mut meter = meter("text/event-stream", "gzip");
        packed.chunks(5).for_each(|piece| meter.feed(piece, false));
        assert_eq!(*meter.reading(), reading([25, 7, 100, 15]));
    }

    #[test]
    fn nonsense_is_nothing() {
        for (kind, encoding, bytes) in [
            ("text/html", "", &b"<p>"[..]),
            ("application/json", "", b"{\"usage\":{\"input_tokens\":-4}}"),
            ("application/json", "gzip", b"not gzip at all"),
            ("application/json", "br", b"\xff\xff\xff\xff"),
            ("application/json", "zstd", b"{}"),
            ("text/event-stream", "", b"data: {\"usage\":\ndata:\ndata"),
        ] {
            let mut meter = meter(kind, encoding);
            meter.feed(bytes, bytes.len() % 2 == 0);
            meter.finish();
            assert_eq!(*meter.reading(), Reading::default(), "{kind} {encoding}");
        }
        let mut long = meter("text/event-stream", "");
        let piece = vec![b'x'; 1 << 20];
        (0..9).for_each(|_| long.feed(&piece, false));
        assert!(matches!(&long, Meter::Plain(reader) if reader.kept.is_empty()), "nothing of it is kept");
        long.feed(b"\n", false);
        long.feed(ANTHROPIC_STREAM.as_bytes(), true);
        assert_eq!(*long.reading(), reading([25, 7, 100, 15]), "the next line counts again");
        let mut broken = meter("text/event-stream", "");
        broken.feed(
            b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
            true,
        );
        assert!(broken.reading().is_overloaded);
        let mut whole = meter("application/json", "");
        whole.feed(br#"{"error":{"type":"overloaded_error"},"usage":{"output_tokens":2}}"#, true);
        assert_eq!((whole.reading().is_overloaded, whole.reading().output), (true, 2));
    }

    #[test]
    fn absurd_figures_are_bounded() {
        for figure in ["18446744073709551615", "9223372036854775808", "99999999999999999999999999"] {
            let text = format!(
                r#"{{"usage":{{"input_tokens":{figure},"cache_creation_input_tokens":{figure},"output_tokens":{figure}}}}}"#
            );
            let mut meter = meter("application/json", "");
            meter.feed(text.as_bytes(), true);
            assert_eq!(*meter.reading(), reading([MOST_TOKENS, MOST_TOKENS, 0, MOST_TOKENS]), "{figure}");
            assert_eq!(meter.reading().counted_input(), 2 * MOST_TOKENS);
        }
        for figure in ["-5", "1.5", "1e9", "null", "\"7\""] {
            let mut meter = meter("application/json", "");
            meter.feed(format!(r#"{{"usage":{{"output_tokens":{figure}}}}}"#).as_bytes(), true);
            assert_eq!(meter.reading().output, 0, "{figure}");
        }
    }

    #[test]
    fn costs() {
        let price = Price { input: 3_000, output: 15_000, cache_write: None, cache_read: None };
        assert_eq!(reading([1_000_000, 0, 0, 1_000_000]).cost(&price), 18_000_000_000);
        assert_eq!(reading([0, 100, 100, 0]).cost(&price), 100 * 3_750 + 100 * 300);
        assert_eq!(reading([u64::MAX, 1, 1, 1]).cost(&price), u64::MAX);
    }
}
