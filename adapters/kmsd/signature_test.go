package kmsd_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/kmsd"
)

func TestAuthenticateSignedRequest(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	for _, profile := range []string{kmsd.App, kmsd.Rotator, kmsd.SealSigner, kmsd.BreakGlass} {
		principal, err := r.Authenticate(r.request(t, profile, "Decrypt", "{}"), []byte("{}"))
		require.NoError(t, err)
		require.Equal(t, profile, principal)
	}
	// Some clients put no blanks between the parts.
	request := r.request(t, kmsd.App, "Decrypt", "{}")
	request.Header.Set("Authorization", strings.ReplaceAll(request.Header.Get("Authorization"), ", ", ","))
	_, err := r.Authenticate(request, []byte("{}"))
	require.NoError(t, err)
}

func TestAuthenticateRefusesChangedRequest(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	const body = `{"KeyId":"a"}`
	other := r.credentials(t, kmsd.BreakGlass)
	for name, change := range map[string]func(*http.Request){
		"another operation":  func(q *http.Request) { q.Header.Set("X-Amz-Target", "TrentService.CancelKeyDeletion") },
		"a second operation": func(q *http.Request) { q.Header.Add("X-Amz-Target", "TrentService.CancelKeyDeletion") },
		"another host":       func(q *http.Request) { q.Host = "example.org" },
		"another method":     func(q *http.Request) { q.Method = http.MethodPut },
		"another date": func(q *http.Request) {
			q.Header.Set("X-Amz-Date", time.Now().Add(time.Minute).UTC().Format("20060102T150405Z"))
		},
		"no date":              func(q *http.Request) { q.Header.Del("X-Amz-Date") },
		"another content type": func(q *http.Request) { q.Header.Set("Content-Type", "text/plain") },
		"a signed header gone": func(q *http.Request) { q.Header.Del("Content-Type") },
		"another length":       func(q *http.Request) { q.ContentLength++ },
		"another's access key": func(q *http.Request) {
			replaceAuthorization(q, r.credentials(t, kmsd.App).AccessKeyID, other.AccessKeyID)
		},
		"an unknown access key":        func(q *http.Request) { replaceAuthorization(q, r.credentials(t, kmsd.App).AccessKeyID, "BBKMUNKNOWN") },
		"a digest without a signature": func(q *http.Request) { q.Header.Del("X-Backbone-Signature") },
		"two signatures of the digest": func(q *http.Request) {
			q.Header.Add("X-Backbone-Signature", q.Header.Get("X-Backbone-Signature"))
		},
		"a changed signature of the digest": func(q *http.Request) {
			signature := q.Header.Get("X-Backbone-Signature")
			q.Header.Set("X-Backbone-Signature", map[bool]string{true: "B", false: "A"}[signature[0] == 'A']+signature[1:])
		},
		"signed as AWS does, with what the server knows": func(q *http.Request) {
			q.Header.Del("X-Backbone-Signature")
			hash := sha256.Sum256([]byte(body))
			c := aws.Credentials{AccessKeyID: r.credentials(t, kmsd.App).AccessKeyID, SecretAccessKey: "backbone/kms-request/v1"}
			require.NoError(t, v4.NewSigner().SignHTTP(t.Context(), c, q, hex.EncodeToString(hash[:]), "kms", kmsd.Region, time.Now()))
		},
		"a changed signature": func(q *http.Request) { flipLast(q) },
		"no signature":        func(q *http.Request) { q.Header.Del("Authorization") },
		"two signatures":      func(q *http.Request) { q.Header.Add("Authorization", q.Header.Get("Authorization")) },
		"another algorithm":   func(q *http.Request) { replaceAuthorization(q, "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256") },
		"target not signed":   func(q *http.Request) { replaceAuthorization(q, ";x-amz-target", "") },
		"a header more":       func(q *http.Request) { replaceAuthorization(q, "SignedHeaders=", "SignedHeaders=accept;") },
		"no headers": func(q *http.Request) {
			q.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=a/b/c/d/aws4_request, SignedHeaders=, Signature=")
		},
		"no parts":           func(q *http.Request) { q.Header.Set("Authorization", "AWS4-HMAC-SHA256 ") },
		"a part twice":       func(q *http.Request) { q.Header.Set("Authorization", q.Header.Get("Authorization")+", Signature=00") },
		"service of another": func(q *http.Request) { sign(t, q, r.credentials(t, kmsd.App), body, kmsd.Region, "sts", time.Now()) },
		"region of another":  func(q *http.Request) { sign(t, q, r.credentials(t, kmsd.App), body, "eu-central-1", "kms", time.Now()) },
		"signed too long ago": func(q *http.Request) {
			sign(t, q, r.credentials(t, kmsd.App), body, kmsd.Region, "kms", time.Now().Add(-6*time.Minute))
		},
		"signed in the future": func(q *http.Request) {
			sign(t, q, r.credentials(t, kmsd.App), body, kmsd.Region, "kms", time.Now().Add(6*time.Minute))
		},
		"signed with app's name": func(q *http.Request) {
			c := other
			c.AccessKeyID = r.credentials(t, kmsd.App).AccessKeyID
			sign(t, q, c, body, kmsd.Region, "kms", time.Now())
		},
	} {
		request := r.request(t, kmsd.App, "Decrypt", body)
		change(request)
		_, err := r.Authenticate(request, []byte(body))
		require.Error(t, err, name)
	}
	_, err := r.Authenticate(r.request(t, kmsd.App, "Decrypt", body), []byte(body+" "))
	require.ErrorContains(t, err, "InvalidSignatureException", "another body")
}

func replaceAuthorization(q *http.Request, from, to string) {
	q.Header.Set("Authorization", strings.Replace(q.Header.Get("Authorization"), from, to, 1))
}

func flipLast(q *http.Request) {
	text := q.Header.Get("Authorization")
	last := "0"
	if strings.HasSuffix(text, "0") {
		last = "1"
	}
	q.Header.Set("Authorization", text[:len(text)-1]+last)
}

func TestAuthenticateSignatureWindow(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	request := r.request(t, kmsd.App, "Decrypt", "{}")
	for after, good := range map[time.Duration]bool{0: true, 4 * time.Minute: true, -4 * time.Minute: true, 6 * time.Minute: false, -6 * time.Minute: false} {
		r.SetSignatureTime(func() time.Time { return time.Now().Add(after) })
		_, err := r.Authenticate(request, []byte("{}"))
		require.Equal(t, good, err == nil, after)
	}
}

func TestServeHTTPRefusesOtherPathsAndBodies(t *testing.T) {
	t.Parallel()
	r := newServerFixture(t)
	for _, change := range []func(*http.Request){
		func(q *http.Request) { q.URL.Path = "/keys" },
		func(q *http.Request) { q.URL.RawQuery = "X-Amz-Signature=1" },
		func(q *http.Request) { q.Method = http.MethodGet },
	} {
		request := r.request(t, kmsd.App, "Decrypt", "{}")
		change(request)
		status, answer := r.do(t, request)
		require.Equal(t, http.StatusBadRequest, status)
		require.Equal(t, "UnsupportedOperationException", answer["__type"])
	}
	r.requireRefused(t, "ValidationException", "Decrypt", `{"KeyId":"`+strings.Repeat("a", 70_000)+`"}`)
	for _, operation := range []string{"", "decrypt", "Encrypt", "ListKeys", "GenerateRandom", "Decrypt ", "../Decrypt"} {
		r.requireRefused(t, "UnsupportedOperationException", operation, "{}")
	}
}
