package kmsd

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
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

// A request is signed in two steps. AWS signature version 4, under a secret that is public,
// digests the request into the Authorization header with the SDK's own signer, so both sides
// canonicalise by the same code. The principal's Ed25519 key signs that header. So the server
// verifies requests with a public key, and no file of it lets anyone sign one.
const (
	signatureHeader = "X-Backbone-Signature"
	publicSecret    = "backbone/kms-request/v1"
)

func signedText(authorization string) []byte {
	return append([]byte(publicSecret+"\n"), stripBlanks(authorization)...)
}

// Signer signs requests to this server. A request with an access key of AWS is signed as AWS
// wants it. It is the HTTPSignerV4 of kms.Options.
type Signer struct{}

// SignHTTP implements kms.HTTPSignerV4.
func (Signer) SignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, payloadHash, service, region string, at time.Time, options ...func(*v4.SignerOptions)) error {
	if !strings.HasPrefix(c.AccessKeyID, accessKeyPrefix) {
		return v4.NewSigner().SignHTTP(ctx, c, r, payloadHash, service, region, at, options...)
	}
	seed, err := base64.StdEncoding.DecodeString(c.SecretAccessKey)
	if err != nil || len(seed) != ed25519.SeedSize {
		return errors.New("the secret of the credentials is damaged")
	}
	defer clear(seed)
	r.Header.Del(signatureHeader) // of an earlier try
	c.SecretAccessKey = publicSecret
	if err := v4.NewSigner().SignHTTP(ctx, c, r, payloadHash, service, region, at, options...); err != nil {
		return err
	}
	key := ed25519.NewKeyFromSeed(seed)
	defer clear(key)
	r.Header.Set(signatureHeader, base64.StdEncoding.EncodeToString(ed25519.Sign(key, signedText(r.Header.Get("Authorization")))))
	return nil
}

// authenticator checks signatures. It digests the same request again.
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
		return "", refuse("UnrecognizedClientException", "The access key is unknown here; use the newest credentials that `backbone kmsd credentials` made")
	}
	mismatch := refuse("InvalidSignatureException", "The signature does not match; check secret, region %q and service %q", Region, signatureService)
	// Each of these headers must occur once and be signed: the server must not read a value
	// that the client did not sign.
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Target", signatureHeader} {
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
	err = a.signer.SignHTTP(context.Background(), aws.Credentials{AccessKeyID: known.accessKey, SecretAccessKey: publicSecret}, again,
		hex.EncodeToString(hash[:]), signatureService, Region, signedAt)
	if err != nil {
		return "", mismatch
	}
	if subtle.ConstantTimeCompare(stripBlanks(again.Header.Get("Authorization")), stripBlanks(r.Header.Get("Authorization"))) != 1 {
		return "", mismatch
	}
	signature, err := base64.StdEncoding.DecodeString(r.Header.Get(signatureHeader))
	if err != nil || !ed25519.Verify(known.public, signedText(r.Header.Get("Authorization")), signature) {
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
