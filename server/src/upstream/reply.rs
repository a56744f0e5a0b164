//! An app server's answer, read within bounds and turned into the envelope `{ok, status, data}`.
//!
//! `data` is the body: JSON when the content type says so and it is, else text in the charset of the content type
//! (UTF-8 without one), bad bytes replaced. JSON is passed on as it stands, so digits are kept; what our own parser
//! does not take (`NaN`, nesting beyond 127, a number out of a double's range) is text, because a browser or a model's
//! client would choke on it.
//!
//! Limits: [`BODY_BYTES_MAX`] bytes after decompression, counted while they come out, so a compressed bomb costs no
//! more than that. gzip and deflate are decompressed, one coding deep; another coding is a failure.

use std::io::{self, Write};

use bytes::Bytes;
use encoding_rs::{Encoding, UTF_8};
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use serde_json::Value;

use super::Failure;

/// Bytes of an answer after decompression (seed: 512 KB, `MAX_RESPONSE_BYTES`).
pub const BODY_BYTES_MAX: usize = 512 * 1024;

/// An app server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its `Content-Type`, empty when there is none.
    pub content_type: String,
    /// Its body, decompressed.
    pub body: Vec<u8>,
}

impl Reply {
    /// The envelope of the action, as JSON.
    pub fn envelope(&self) -> Vec<u8> {
        let (ok, status) = (self.status.is_success(), self.status.as_u16());
        format!(r#"{{"ok":{ok},"status":{status},"data":{}}}"#, self.data()).into_bytes()
    }

    /// The body as JSON text.
    fn data(&self) -> String {
        let content_type = self.content_type.to_ascii_lowercase();
        let text = charset(&content_type).decode(&self.body).0;
        if content_type.contains("json") && serde_json::from_str::<Value>(&text).is_ok() {
            return text.trim().to_owned();
        }
        Value::from(text).to_string()
    }
}

/// The charset of a content type in lower case.
fn charset(content_type: &str) -> &'static Encoding {
    let value = content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        (name.trim() == "charset").then(|| value.trim().trim_matches(['"', '\'']))
    });
    value.and_then(|label| Encoding::for_label_no_replacement(label.as_bytes())).unwrap_or(UTF_8)
}

/// What is used of the head of an answer: the content type as text.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    headers
        .get(CONTENT_TYPE)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .unwrap_or_default()
}

/// Collects a body, decompressing it.
pub(super) struct Collector {
    coding: Coding,
    decoder: Option<Decoder>,
}

/// `Content-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
    Deflate,
}

/// Made when the first byte is there: an empty body is no broken stream, and `deflate` means two formats.
enum Decoder {
    Identity(Bounded),
    Gzip(MultiGzDecoder<Bounded>),
    Zlib(ZlibDecoder<Bounded>),
    Deflate(DeflateDecoder<Bounded>),
}

/// Bytes up to the limit.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    is_over: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > BODY_BYTES_MAX {
            self.is_over = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Collector {
    /// For a body with these headers.
    ///
    /// # Errors
    /// [`Failure::Upstream`] for a coding that was not asked for.
    pub(super) fn new(headers: &HeaderMap) -> Result<Self, Failure> {
        let mut coding = Coding::Identity;
        for value in headers.get_all(CONTENT_ENCODING) {
            let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            for name in value.split(',').map(str::trim).filter(|name| !matches!(*name, "" | "identity")) {
                let next = match name {
                    "gzip" | "x-gzip" => Some(Coding::Gzip),
                    "deflate" => Some(Coding::Deflate),
                    _ => None,
                };
                coding = match (coding, next) {
                    (Coding::Identity, Some(next)) => next,
                    (_, _) => {
                        return Err(Failure::Upstream(
                            "its answer is compressed in a way that was not asked for (gzip or deflate, once)".to_owned(),
                        ));
                    }
                };
            }
        }
        Ok(Self { coding, decoder: None })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Failure::TooLarge`] beyond the limit, [`Failure::Upstream`] for bytes that do not decompress.
    pub(super) fn add(&mut self, bytes: &Bytes) -> Result<(), Failure> {
        let Some(first) = bytes.first() else { return Ok(()) };
        let coding = self.coding;
        let decoder = self.decoder.get_or_insert_with(|| match coding {
            Coding::Identity => Decoder::Identity(Bounded::default()),
            Coding::Gzip => Decoder::Gzip(MultiGzDecoder::new(Bounded::default())),
            // The zlib format that RFC 9110 means has its method, 8, in the low bits; bare deflate, which some send,
            // does not.
            Coding::Deflate if first & 0x0F == 8 => Decoder::Zlib(ZlibDecoder::new(Bounded::default())),
            Coding::Deflate => Decoder::Deflate(DeflateDecoder::new(Bounded::default())),
        });
        let done = match decoder {
            Decoder::Identity(bounded) => bounded.write_all(bytes),
            Decoder::Gzip(decoder) => decoder.write_all(bytes),
            Decoder::Zlib(decoder) => decoder.write_all(bytes),
            Decoder::Deflate(decoder) => decoder.write_all(bytes),
        };
        done.map_err(|error| decoder.failure(&error))
    }

    /// The whole body.
    ///
    /// # Errors
    /// As [`Collector::add`], and for a compressed stream that lacks its end.
    pub(super) fn finish(self) -> Result<Vec<u8>, Failure> {
        let Some(mut decoder) = self.decoder else { return Ok(Vec::new()) };
        let done = match &mut decoder {
            Decoder::Identity(_) => Ok(()),
            Decoder::Gzip(decoder) => decoder.try_finish(),
            Decoder::Zlib(decoder) => decoder.try_finish(),
            Decoder::Deflate(decoder) => decoder.try_finish(),
        };
        done.map_err(|error| decoder.failure(&error))?;
        Ok(std::mem::take(&mut decoder.bounded_mut().bytes))
    }
}

impl Decoder {
    fn bounded_mut(&mut self) -> &mut Bounded {
        match self {
            Self::Identity(bounded) => bounded,
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Zlib(decoder) => decoder.get_mut(),
            Self::Deflate(decoder) => decoder.get_mut(),
        }
    }

    /// What an error of the decompression means.
    fn failure(&mut self, error: &io::Error) -> Failure {
        if self.bounded_mut().is_over {
            return Failure::TooLarge;
        }
        tracing::debug!(%error, "an app server's answer does not decompress");
        Failure::Upstream("its answer does not decompress".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(coding: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
        headers
    }

    fn collect(coding: &str, pieces: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mut collector = Collector::new(&headers(coding)).map_err(|failure| failure.to_string())?;
        for piece in pieces {
            collector.add(&Bytes::copy_from_slice(piece)).map_err(|failure| failure.to_string())?;
        }
        collector.finish().map_err(|failure| failure.to_string())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[track_caller]
    fn data(content_type: &str, body: &[u8], expected: &str) {
        let reply =
            Reply { status: StatusCode::OK, content_type: content_type.to_owned(), body: body.to_vec() };
        assert_eq!(reply.data(), expected);
    }

    #[test]
    fn json_is_passed_on_as_it_stands_and_all_else_is_text() {
        data(
            "application/json",
            b" {\"a\": 1.50, \"b\":1234567890123456789012}\n",
            "{\"a\": 1.50, \"b\":1234567890123456789012}",
        );
        data("Application/Vnd.Api+JSON; charset=utf-8", b"[1]", "[1]");
        data("application/json", b"\xEF\xBB\xBF[1]", "[1]");
        data("application/json", b"", "\"\"");
        data("", b"[1]", "\"[1]\"");
        data("text/plain", b"true", "\"true\"");
        for bad in ["NaN", "{\"a\":NaN}", "1e400", "{\"a\":1", "\"\\ud800\"", "[1] 2"] {
            data("application/json", bad.as_bytes(), &Value::from(bad).to_string());
        }
        let deep = "[".repeat(200_000);
        data("application/json", deep.as_bytes(), &format!("\"{deep}\""));
        data("application/json", b"\"\xff\"", "\"\u{fffd}\"");
    }

    #[test]
    fn text_is_read_in_its_charset() {
        data("text/plain; charset=iso-8859-1", b"caff\xe8", "\"caffè\"");
        data("text/plain;Charset=\"UTF-16LE\"", b"a\0b\0", "\"ab\"");
        data("text/plain; charset=shift_jis", b"\x83\x65", "\"テ\"");
        data("application/json; charset=windows-1252", b"{\"a\":\"\x80\"}", "{\"a\":\"€\"}");
        data("text/plain; charset=nonsense", "è".as_bytes(), "\"è\"");
        data("text/plain; charset=iso-2022-kr", b"a", "\"a\"");
        data("text/plain", b"a\xffb\0\n", "\"a\u{fffd}b\\u0000\\n\"");
    }

    #[test]
    fn the_envelope_says_whether_it_went_well() {
        for (status, expected) in [
            (200, r#"{"ok":true,"status":200,"data":"x"}"#),
            (299, r#"{"ok":true,"status":299,"data":"x"}"#),
            (302, r#"{"ok":false,"status":302,"data":"x"}"#),
            (503, r#"{"ok":false,"status":503,"data":"x"}"#),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let reply = Reply { status, content_type: String::new(), body: b"x".to_vec() };
            assert_eq!(String::from_utf8(reply.envelope()).unwrap(), expected);
        }
    }

    #[test]
    fn compressed_bodies_are_decompressed_however_they_are_cut() {
        let text = b"something that repeats, something that repeats".repeat(20);
        for (coding, packed) in [
            ("gzip", gzip(&text)),
            ("X-GZIP", [gzip(&text[..100]), gzip(&text[100..])].concat()),
            ("identity, gzip", gzip(&text)),
            ("deflate", zlib(&text)),
            ("deflate", deflate(&text)),
            ("identity", text.clone()),
        ] {
            let bytes: Vec<&[u8]> = packed.chunks(1).collect();
            assert_eq!(collect(coding, &bytes).unwrap(), text, "{coding}");
            assert_eq!(collect(coding, &[&packed]).unwrap(), text, "{coding}");
            assert_eq!(collect(coding, &[]).unwrap(), b"", "{coding}: an empty body");
            if coding != "identity" {
                let error = collect(coding, &[&packed[..packed.len() - 9]]).unwrap_err();
                assert!(error.ends_with("its answer does not decompress"), "{coding}: {error}");
            }
        }
        for coding in ["br", "gzip, gzip", "zstd", "gzip, deflate"] {
            assert!(Collector::new(&headers(coding)).is_err(), "{coding}");
        }
        assert!(collect("gzip", &[b"no gzip at all"]).is_err());
    }

    #[test]
    fn the_limit_counts_what_comes_out() {
        let full = vec![b'a'; BODY_BYTES_MAX];
        let over = vec![b'a'; BODY_BYTES_MAX + 1];
        let bomb = gzip(&vec![0; 64 * 1024 * 1024]);
        assert!(bomb.len() < 100_000);
        for (coding, good, bad) in [
            ("identity", full.clone(), over.clone()),
            ("gzip", gzip(&full), gzip(&over)),
            ("deflate", zlib(&full), zlib(&over)),
            ("deflate", deflate(&full), deflate(&over)),
            ("gzip", gzip(b""), bomb),
        ] {
            assert!(collect(coding, &[&good]).is_ok(), "{coding}");
            let error = collect(coding, &[&bad]).unwrap_err();
            assert_eq!(error, "server response exceeds 524288 bytes", "{coding}");
        }
    }
}
