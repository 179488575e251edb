package shredding

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// SignCertificate encodes a certificate of a format about a request, and signs it: sign returns a
// signed note over a text.
func SignCertificate(format string, request event.ID, certificate any, sign func(text []byte) (note []byte, err error)) ([]byte, error) {
	encoded, err := json.MarshalIndent(certificate, "  ", "  ")
	if err != nil {
		return nil, err
	}
	note, err := sign(certificateText(format, request, encoded))
	if err != nil {
		return nil, err
	}
	return certificateDocument(encoded, note), nil
}

// certificateText is the text of the note under a certificate.
func certificateText(format string, request event.ID, certificate []byte) []byte {
	return fmt.Appendf(nil, "%s\n%s\n%x\n", format, request, sha256.Sum256(certificate))
}

// certificateDocument encodes a certificate in the one way that OpenCertificate accepts, so that
// it detects every changed byte.
func certificateDocument(certificate, note []byte) []byte {
	quoted, _ := json.Marshal(string(note)) // encoding a string cannot fail
	return fmt.Appendf(nil, "{\n  \"certificate\": %s,\n  \"note\": %s\n}\n", certificate, quoted)
}

// CertificateFormat returns the format that a document claims, "" if it is no certificate.
func CertificateFormat(document []byte) string {
	var d struct {
		Certificate struct {
			Format string `json:"format"`
		} `json:"certificate"`
	}
	if json.Unmarshal(document, &d) != nil {
		return ""
	}
	return d.Certificate.Format
}

// OpenCertificate decodes a certificate of a format to out and checks that no byte of it was
// changed. open checks the signature of a note and returns its text; request reads the id of the
// request from out.
//
//	erasure.certificate_malformed  Invalid: no certificate, or not encoded as it was issued
//	erasure.certificate_altered    Invalid: not the certificate that was signed
func OpenCertificate(document []byte, format string, out any, request func() event.ID, open func(note []byte) (text []byte, err error)) error {
	malformed := fault.New(fault.Invalid, "erasure.certificate_malformed", "this is not a certificate as it was issued; download it again and do not reformat it")
	certificate, found, err := jsondoc.Member(document, "certificate")
	if err != nil || !found {
		return malformed
	}
	quoted, found, err := jsondoc.Member(document, "note")
	var note string
	if err != nil || !found || json.Unmarshal(quoted, &note) != nil {
		return malformed
	}
	text, err := open([]byte(note))
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(certificate))
	decoder.DisallowUnknownFields()
	if decoder.Decode(out) != nil || CertificateFormat(document) != format || !bytes.Equal(certificateDocument(certificate, []byte(note)), document) {
		return malformed
	}
	if !bytes.Equal(text, certificateText(format, request(), certificate)) {
		return fault.New(fault.Invalid, "erasure.certificate_altered", "the certificate was changed after it was signed; download it again")
	}
	return nil
}
