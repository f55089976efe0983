//! Which server certificates are trusted.
//!
//! Certificates issued by authorities are trusted, as usual, and so is a server's own certificate
//! if the file of trusted certificates contains it byte for byte: the user chose it, so it needs no
//! issuer. rustls would refuse such a certificate if it may sign other certificates, as those made
//! by plain `openssl req -x509` may.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use sha2::{Digest, Sha256};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::oid::ObjectIdentifier;

use crate::failure::Failure;
use crate::small_file::{about, read_at_most};

/// Size limit of a file of certificates. The system's own file is a fifth as large.
const LONGEST: u64 = 1 << 20;
/// Message about a file that should be in PEM format.
const IN_DER: &str = "a DER certificate, not PEM; convert it with openssl x509 -inform der";
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// TLS with the system's certificates, and those from a file in PEM.
pub fn config(ca_file: Option<&Path>) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Verifier::new(ca_file, &provider)?);
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(Failure::lasting)?.dangerous();
    let mut config = builder
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[derive(Debug)]
struct Verifier {
    /// `None` if no authority is trusted.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// SHA-256 of each trusted certificate.
    trusted: HashSet<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(ca_file: Option<&Path>, provider: &Arc<CryptoProvider>) -> Result<Verifier, Failure> {
        // A system certificate that cannot be read is not trusted.
        let mut certificates = rustls_native_certs::load_native_certs().certs;
        if let Some(path) = ca_file {
            certificates.extend(read(path)?);
        }
        let trusted = certificates.iter().map(hash).collect();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        let authorities = (!roots.is_empty()).then(|| {
            let provider = Arc::clone(provider);
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()
        });
        Ok(Verifier {
            authorities: authorities.transpose().map_err(Failure::lasting)?,
            trusted,
            provider: Arc::clone(provider),
        })
    }
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let bytes = read_at_most("ca", path, LONGEST)?;
    let read = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let why = match read {
        Ok(read) if !read.is_empty() => return Ok(read),
        Ok(_) if Certificate::from_der(&bytes).is_ok() => IN_DER.to_owned(),
        Ok(_) => "contains no PEM certificate (-----BEGIN CERTIFICATE-----)".to_owned(),
        Err(error) => format!("not a file of PEM certificates: {error}"),
    };
    Err(about("ca", path, why))
}

fn hash(certificate: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(certificate).into()
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.trusted.contains(&hash(end_entity)) {
            return check_trusted(end_entity, name, now);
        }
        let unknown = || Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let authorities = self.authorities.as_ref().ok_or_else(unknown)?;
        let verified = authorities.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        verified.map_err(|error| match error {
            // rustls reports `Other` if a server presents a CA certificate; what matters is that no
            // authority vouches for it.
            Error::InvalidCertificate(CertificateError::Other(_)) => unknown(),
            other => other,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}

/// Checks the certificate's validity period and name: a certificate for one server must not stand
/// in for another.
fn check_trusted(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let parsed = Certificate::from_der(certificate).map_err(|_| bad())?;
    let validity = &parsed.tbs_certificate.validity;
    let (begin, end) = (&validity.not_before, &validity.not_after);
    if now.as_secs() < begin.to_unix_duration().as_secs() {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if now.as_secs() > end.to_unix_duration().as_secs() {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    let verified = verify_server_name(&ParsedCertificate::try_from(certificate)?, name);
    match verified {
        Err(_) if is_common_name(&parsed, &name.to_str()) => {}
        verified => verified?,
    }
    Ok(ServerCertVerified::assertion())
}

/// Whether `name` is the common name of a certificate without alternative names, such as
/// `openssl req -x509` makes.
fn is_common_name(certificate: &Certificate, name: &str) -> bool {
    let certificate = &certificate.tbs_certificate;
    let mut extensions = certificate.extensions.iter().flatten();
    if extensions.any(|extension| extension.extn_id == SUBJECT_ALT_NAME) {
        return false;
    }
    let parts = certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let mut names = parts.filter(|part| part.oid == COMMON_NAME);
    // All usual types of strings store an ASCII character as one byte.
    names.any(|part| part.value.value().eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_certificate_is_trusted_for_its_time_and_its_name_alone() {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=host.test", "-keyout", "key", "-out", "cert"])
            .current_dir(&folder)
            .output();
        assert!(made.expect("openssl").status.success());
        let certificate = CertificateDer::from_pem_file(folder.path().join("cert")).unwrap();
        let check = |name: &'static str, time: UnixTime| {
            let name = ServerName::try_from(name).unwrap();
            check_trusted(&certificate, &name, time).map(drop)
        };
        let (now, day) = (UnixTime::now(), Duration::from_secs(24 * 3600));
        let since = Duration::from_secs(now.as_secs());
        let later = UnixTime::since_unix_epoch(since + 3 * day);
        let before = UnixTime::since_unix_epoch(since - day);
        check("host.test", now).unwrap();
        check("HOST.test", now).unwrap();
        for (name, time, why) in [
            ("host.test", later, CertificateError::Expired),
            ("host.test", before, CertificateError::NotValidYet),
        ] {
            assert_eq!(check(name, time), Err(Error::InvalidCertificate(why)));
        }
        check("other.test", now).unwrap_err();
    }
}
