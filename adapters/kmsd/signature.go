package kmsd

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	signatureAlgorithm = "AWS4-HMAC-SHA256"
	signatureService   = "kms"
	signatureWindow    = 5 * time.Minute
	signatureTime      = "20060102T150405Z"
)

// authenticator checks signatures of version 4 by signing the same request again
// with the SDK's own signer, so both sides canonicalise by the same code.
type authenticator struct {
	credentials map[string]credential // by access key
	signer      *v4.Signer
	now         func() time.Time // the machine's: clients sign with theirs
}

// authorization is the Authorization header in parts.
type authorization struct {
	accessKey     string
	date          string
	region        string
	service       string
	signedHeaders []string
}

func parseAuthorization(text string) (a authorization, err error) {
	if text == "" {
		return a, refuse("MissingAuthenticationTokenException", "The request is not signed; sign it with AWS signature version 4")
	}
	incomplete := refuse("IncompleteSignatureException", "The Authorization header is not of AWS signature version 4")
	rest, ok := strings.CutPrefix(text, signatureAlgorithm+" ")
	if !ok {
		return a, incomplete
	}
	parts := map[string]string{}
	for _, part := range strings.Split(rest, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if _, twice := parts[name]; !ok || twice {
			return a, incomplete
		}
		parts[name] = value
	}
	scope := strings.Split(parts["Credential"], "/")
	if len(parts) != 3 || len(scope) != 5 || scope[4] != "aws4_request" || parts["SignedHeaders"] == "" || parts["Signature"] == "" {
		return a, incomplete
	}
	return authorization{accessKey: scope[0], date: scope[1], region: scope[2], service: scope[3], signedHeaders: strings.Split(parts["SignedHeaders"], ";")}, nil
}

// authenticate returns the principal that signed a request.
func (a *authenticator) authenticate(r *http.Request, body []byte) (principal string, err error) {
	claimed, err := parseAuthorization(r.Header.Get("Authorization"))
	if err != nil {
		return "", err
	}
	known, ok := a.credentials[claimed.accessKey]
	if !ok {
		return "", refuse("UnrecognizedClientException", "The access key is unknown here; use one of the server's credentials file")
	}
	mismatch := refuse("InvalidSignatureException", "The signature does not match; check secret, region %q and service %q", Region, signatureService)
	// Each of these headers must occur once and be signed: the server must not read a value
	// that the client did not sign.
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Target"} {
		if len(r.Header.Values(name)) != 1 {
			return "", mismatch
		}
	}
	for _, name := range []string{"host", "x-amz-date", "x-amz-target"} {
		if !slices.Contains(claimed.signedHeaders, name) {
			return "", mismatch
		}
	}
	signedAt, err := time.Parse(signatureTime, r.Header.Get("X-Amz-Date"))
	if err != nil || claimed.date != signedAt.Format("20060102") || claimed.region != Region || claimed.service != signatureService {
		return "", mismatch
	}
	if a.now().Sub(signedAt).Abs() > signatureWindow {
		return "", refuse("InvalidSignatureException", "The signature is more than %s away from this machine's time; set the clock", signatureWindow)
	}
	again := signable(r, claimed.signedHeaders)
	hash := sha256.Sum256(body)
	err = a.signer.SignHTTP(context.Background(), aws.Credentials{AccessKeyID: known.accessKey, SecretAccessKey: known.secret}, again,
		hex.EncodeToString(hash[:]), signatureService, Region, signedAt)
	if err != nil {
		return "", mismatch
	}
	if subtle.ConstantTimeCompare(stripBlanks(again.Header.Get("Authorization")), stripBlanks(r.Header.Get("Authorization"))) != 1 {
		return "", mismatch
	}
	return known.principal, nil
}

// stripBlanks drops the blanks between the parts, which clients may put or leave out.
func stripBlanks(authorization string) []byte {
	return []byte(strings.ReplaceAll(authorization, " ", ""))
}

// signable copies the parts of a request that the client signed.
func signable(r *http.Request, signedHeaders []string) *http.Request {
	again := &http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Scheme: "http", Host: r.Host, Path: "/"}, Header: http.Header{}}
	for _, name := range signedHeaders {
		switch name {
		case "host":
		case "content-length":
			again.ContentLength = r.ContentLength
		default:
			if values := r.Header.Values(name); len(values) > 0 {
				again.Header[textproto.CanonicalMIMEHeaderKey(name)] = slices.Clone(values)
			}
		}
	}
	return again
}
