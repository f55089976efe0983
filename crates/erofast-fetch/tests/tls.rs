//! HTTPS, with HTTP/1.1 and HTTP/2.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::server::Connection;
use crate::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const LENGTH: usize = 3_000_000;

/// A certificate for a name, which signs no others, and its key.
pub(crate) fn certificate(folder: &Path, name: &str) -> Arc<ServerConfig> {
    let name = format!("subjectAltName={name}");
    let signs = "basicConstraints=critical,CA:FALSE";
    self_signed(
        folder,
        &["-subj", "/CN=test", "-addext", signs, "-addext", &name],
    )
}

/// A certificate as made by `openssl req -x509`.
fn self_signed(folder: &Path, arguments: &[&str]) -> Arc<ServerConfig> {
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args(["-nodes", "-days", "2"])
        .args(arguments)
        .args([
            "-keyout".as_ref(),
            key.as_os_str(),
            "-out".as_ref(),
            cert.as_os_str(),
        ])
        .output();
    assert!(made.expect("openssl").status.success());
    let cert = CertificateDer::from_pem_file(cert).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth();
    Arc::new(config.with_single_cert(vec![cert], key).expect("they fit"))
}

fn server(config: Arc<ServerConfig>) -> Server {
    Server::start_over(image(LENGTH), move |stream| accept(&config, stream))
}

/// TLS over a connection.
pub(crate) fn accept(config: &Arc<ServerConfig>, stream: TcpStream) -> Option<Box<dyn Connection>> {
    let connection = ServerConnection::new(Arc::clone(config)).ok()?;
    Some(Box::new(StreamOwned::new(connection, stream)))
}

/// The fetcher with another set of trusted certificates.
pub(crate) fn trusting(folder: &Path) -> PathBuf {
    program_with(folder, &[("SSL_CERT_FILE", &folder.join("cert.pem"))])
}

fn open_with(
    program: PathBuf,
    url: &str,
    cache: &tempfile::TempDir,
) -> std::io::Result<RemoteFile> {
    crate::open_with(program, url, &options(cache))
}

#[test]
fn an_image_comes_over_tls_if_the_certificate_fits() {
    let cache = cache();
    let server = server(certificate(cache.path(), "IP:127.0.0.1"));
    let url = server.url("/a").replace("http:", "https:");
    let file = open_with(trusting(cache.path()), &url, &cache).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    // The system does not trust the certificate.
    let error = open_with(program(), &url, &cache).unwrap_err().to_string();
    assert!(
        error.starts_with(&url) && error.contains("certificate"),
        "{error}"
    );
    // The certificate is for another name.
    if !names_localhost() {
        return;
    }
    let named = url.replace("127.0.0.1", "localhost");
    let error = open_with(trusting(cache.path()), &named, &cache)
        .unwrap_err()
        .to_string();
    assert!(error.contains("not valid for name"), "{error}");
}

/// Such a certificate may sign others, which a server's certificate may not.
#[test]
fn a_self_signed_certificate_is_trusted_where_it_is_named() {
    let name = ["-addext", "subjectAltName=IP:127.0.0.1"];
    let common = ["-subj", "/CN=127.0.0.1"];
    let named = ["-subj", "/CN=test", name[0], name[1]];
    for arguments in [&named[..], &common] {
        let cache = cache();
        let server = server(self_signed(cache.path(), arguments));
        let url = server.url("/a").replace("http:", "https:");
        let line = open_with(program(), &url, &cache).unwrap_err().to_string();
        let end =
            "invalid peer certificate: UnknownIssuer (http.ca_file= names certificates to trust)";
        assert!(line.ends_with(end), "{line}");
        let named = Options {
            ca_file: Some(cache.path().join("cert.pem")),
            ..options(&cache)
        };
        for file in [
            open_with(trusting(cache.path()), &url, &cache),
            open(&url, &named),
        ] {
            assert_eq!(read(&file.unwrap(), 0..LENGTH).unwrap(), image(LENGTH));
        }
        // The certificate is trusted for this server only.
        if !names_localhost() {
            continue;
        }
        let other = url.replace("127.0.0.1", "localhost");
        let line = open(&other, &named).unwrap_err().to_string();
        assert!(line.contains("certificate not valid for name"), "{line}");
    }
}

#[test]
fn a_file_of_certificates_that_has_none_is_named() {
    let cache = cache();
    let (server, path) = (Server::start(image(LENGTH)), cache.path().join("ca"));
    let line = || {
        let named = Options {
            ca_file: Some(path.clone()),
            ..options(&cache)
        };
        open(&server.url("/a"), &named).unwrap_err().to_string()
    };
    let begin = format!("{}: http.ca_file={}: ", server.url("/a"), path.display());
    assert!(
        line().starts_with(&format!("{begin}No such file")),
        "{}",
        line()
    );
    std::fs::write(&path, "none").unwrap();
    let none = format!("{begin}contains no PEM certificate (-----BEGIN CERTIFICATE-----)");
    assert_eq!(line(), none);
    std::fs::write(&path, b"\xff\xfe none either").unwrap();
    assert_eq!(line(), none);
    certificate(cache.path(), "IP:127.0.0.1");
    let certificate = CertificateDer::from_pem_file(cache.path().join("cert.pem")).unwrap();
    std::fs::write(&path, &certificate).unwrap();
    let der = "a DER certificate, not PEM; convert it with openssl x509 -inform der";
    assert_eq!(line(), format!("{begin}{der}"));
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    std::fs::write(&path, broken).unwrap();
    let begin = format!("{begin}not a file of PEM certificates: ");
    assert!(line().starts_with(&begin), "{}", line());
}

#[test]
fn credentials_that_are_no_text_are_named() {
    let cache = cache();
    let (server, path) = (Server::start(image(LENGTH)), cache.path().join("token"));
    std::fs::write(&path, b"\xff").unwrap();
    let named = Options {
        token_file: Some(path.clone()),
        ..options(&cache)
    };
    let line = open(&server.url("/a"), &named).unwrap_err().to_string();
    let end = format!("http.token_file={}: not UTF-8 text", path.display());
    assert!(line.ends_with(&end), "{line}");
}

#[test]
fn http_2_has_all_ranges_over_one_connection() {
    let cache = cache();
    let mut config = Arc::unwrap_or_clone(certificate(cache.path(), "IP:127.0.0.1"));
    config.alpn_protocols = vec![b"h2".into()];
    let (connections, ranges) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/a", listener.local_addr().unwrap());
    let counts = (Arc::clone(&connections), Arc::clone(&ranges));
    std::thread::spawn(move || serve_http_2(listener, config, &counts));
    let file = open_with(trusting(cache.path()), &url, &cache).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    // The first block, and the other 45 in ranges of 16.
    assert_eq!(ranges.load(Ordering::SeqCst), 1 + 3);
}

/// After the redirect, tokens and the image would be sent without TLS.
#[test]
fn a_redirect_out_of_tls_is_refused() {
    let cache = cache();
    let server = server(certificate(cache.path(), "IP:127.0.0.1"));
    let plain = Server::start(image(LENGTH));
    server.state().always = Some(Fault::Redirect(plain.url("/a")));
    let url = server.url("/a").replace("http:", "https:");
    let error = open_with(trusting(cache.path()), &url, &cache).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{url}: a redirect to http:// is not followed")
    );
    assert!(plain.state().asked.is_empty());
}

/// The proxy sees the name, and bytes that it cannot read.
#[test]
fn a_proxy_of_the_environment_passes_tls_on() {
    let cache = cache();
    let server = server(certificate(cache.path(), "DNS:images.test"));
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let (lines, asked) = std::sync::mpsc::channel();
    let target = server.address;
    std::thread::spawn(move || {
        for client in proxy.incoming().flatten() {
            let _ = lines.send(pass_on(client, target));
        }
    });
    let proxy = format!("http://{address}");
    let (cert, proxy) = (cache.path().join("cert.pem"), Path::new(&proxy));
    let variables = [("SSL_CERT_FILE", &*cert), ("https_proxy", proxy)];
    let script = program_with(cache.path(), &variables);
    let file = open_with(script, "https://images.test/a", &cache).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    assert_eq!(asked.recv().unwrap(), "CONNECT images.test:443 HTTP/1.1");
}

/// Forwards both directions in the background; returns the client's first line.
fn pass_on(client: TcpStream, target: SocketAddr) -> String {
    let mut from = BufReader::new(client.try_clone().unwrap());
    let mut lines = from.by_ref().lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    (&client)
        .write_all(b"HTTP/1.1 200 Connected\r\n\r\n")
        .unwrap();
    let server = TcpStream::connect(target).unwrap();
    let mut to = server.try_clone().unwrap();
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::thread::spawn(move || std::io::copy(&mut &server, &mut &client));
    first
}

type Counts = (Arc<AtomicUsize>, Arc<AtomicUsize>);

fn serve_http_2(listener: TcpListener, config: ServerConfig, counts: &Counts) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let stream = acceptor.accept(stream).await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            counts.0.fetch_add(1, Ordering::SeqCst);
            while let Some(Ok((request, respond))) = connection.accept().await {
                counts.1.fetch_add(1, Ordering::SeqCst);
                answer(&request, respond);
            }
        }
    });
}

/// Sends everything at once; h2 keeps the data until the windows have room for them.
fn answer(
    request: &http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<bytes::Bytes>,
) {
    let range = request.headers()["range"]
        .to_str()
        .unwrap()
        .strip_prefix("bytes=")
        .unwrap();
    let (first, last) = range.split_once('-').unwrap();
    let (first, last) = (
        first.parse::<usize>().unwrap(),
        last.parse::<usize>().unwrap(),
    );
    let response = http::Response::builder()
        .status(206)
        .header("etag", "\"1\"")
        .header("content-range", format!("bytes {first}-{last}/{LENGTH}"));
    let mut body = respond
        .send_response(response.body(()).unwrap(), false)
        .unwrap();
    body.send_data(image(LENGTH)[first..=last].to_vec().into(), true)
        .unwrap();
}
