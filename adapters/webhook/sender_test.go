package webhook_test

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/erpbackbone/backbone/adapters/webhook"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// waitFor bounds what must end by itself.
const waitFor = time.Minute

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestPublic(t *testing.T) {
	t.Parallel()
	for address, public := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "93.184.216.34": true, "172.15.255.255": true, "172.32.0.0": true, "100.63.255.255": true, "100.128.0.0": true,
		"223.255.255.255": true, "11.0.0.0": true, "192.167.255.255": true, "169.253.255.255": true,
		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "10.255.255.255": false, "100.64.0.0": false, "100.100.100.200": false, "100.127.255.255": false,
		"127.0.0.1": false, "127.255.255.254": false, "169.254.169.254": false, "169.254.0.1": false, "172.16.0.1": false, "172.31.255.255": false,
		"192.0.0.192": false, "192.0.2.1": false, "192.88.99.1": false, "192.168.1.1": false, "198.18.0.1": false, "198.19.255.255": false, "198.51.100.1": false,
		"203.0.113.1": false, "224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false, "168.63.129.16": false,
		"2606:4700:4700::1111": true, "2a00:1450:4001:81b::200e": true, "64:ff9b::8.8.8.8": true, "::ffff:8.8.8.8": true,
		"::": false, "::1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "fec0::1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:10.0.0.1": false, "::127.0.0.1": false, "::8.8.8.8": false,
		"64:ff9b::127.0.0.1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::8.8.8.8": false, "2002:7f00:1::": false, "2002:808:808::": false,
		"2001::1": false, "2001:db8::1": false, "3fff::1": false, "100::1": false, "5f00::1": false,
	} {
		require.Equal(t, public, webhook.Public(netip.MustParseAddr(address)), address)
	}
	require.False(t, webhook.Public(netip.Addr{}))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	strict := webhook.New(webhook.Config{Clock: testkit.NewClock(now)})
	for _, good := range []string{"https://example.org/hook?x=1", "https://example.org:8443", "https://[2606:4700:4700::1111]/x", "https://8.8.8.8/"} {
		require.NoError(t, strict.Check(good), good)
	}
	for _, bad := range []string{
		"", "example.org", "/hook", "http://example.org", "ftp://example.org", "https://", "https:example.org", "https://user:pass@example.org", "https://example.org/#x",
		"https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest", "https://[::ffff:10.0.0.1]/", "https://example.org:0/", "https://example.org:99999/",
		"https://example.org/" + strings.Repeat("x", 2000), "https://exa mple.org/",
	} {
		require.Equal(t, "webhook.url_invalid", fault.CodeOf(strict.Check(bad)), bad)
	}
	loose := webhook.New(webhook.Config{AllowHTTP: true, AllowPrivateNetworks: true, Clock: testkit.NewClock(now)})
	require.NoError(t, loose.Check("http://127.0.0.1:8080/hook"))
	require.Error(t, loose.Check("https://224.0.0.1/"))
	some := webhook.New(webhook.Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Clock: testkit.NewClock(now)})
	require.NoError(t, some.Check("https://10.1.2.3/"))
	require.Error(t, some.Check("https://10.2.2.3/"))
}

// dnsServer answers each question with the address that answer returns, so that a name may
// change its address between two questions.
func dnsServer(t *testing.T, answer func(question int32) netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	var asked atomic.Int32
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(b[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Authoritative, m.Additionals = true, true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 0},
					Body:   &dnsmessage.AResource{A: answer(asked.Add(1)).As4()},
				}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// TestSend_ChangedDNSName resolves a name to this host, as an attacker does who rebinds the name
// after it was checked.
func TestSend_ChangedDNSName(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	t.Cleanup(inner.Close)
	_, port, err := net.SplitHostPort(inner.Listener.Addr().String())
	require.NoError(t, err)
	resolver := dnsServer(t, func(int32) netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	send := func(c webhook.Config) error {
		c.Resolver, c.AllowHTTP, c.Clock = resolver, true, testkit.NewClock(now)
		s := webhook.New(c)
		address := "http://hooks.example.org:" + port + "/"
		require.NoError(t, s.Check(address), "Check does not resolve the name")
		_, err := s.Send(t.Context(), ports.WebhookRequest{URL: address, Timestamp: now, Timeout: waitFor})
		return err
	}
	require.Equal(t, "webhook.dns", fault.CodeOf(send(webhook.Config{})))
	require.False(t, reached.Load())
	require.NoError(t, send(webhook.Config{AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	require.True(t, reached.Load())
}

// TestSend_Metadata refuses the addresses of metadata services whatever the settings allow, and
// answers as for a name that does not exist.
func TestSend_Metadata(t *testing.T) {
	t.Parallel()
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	s := webhook.New(webhook.Config{AllowHTTP: true, AllowPrivateNetworks: true, AllowedNetworks: all, Clock: testkit.NewClock(now)})
	for _, address := range []string{
		"169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "[fd00:ec2::254]", "[fd20:ce::254]", "[fe80::a9fe:a9fe]",
		"[::ffff:169.254.169.254]", "[::169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "[2002:a9fe:a9fe::1]",
		// 169.254.169.254 behind prefixes of 48, 56, 64 and 96 bits within the local-use prefix of NAT64.
		"[64:ff9b:1:a9fe:a9:fe00::]", "[64:ff9b:1:a9fe:ffa9:feff:ffff:ffff]", "[64:ff9b:1:12a9:fe:a9fe::]", "[64:ff9b:1:1234:a9:fea9:fe00:0]", "[64:ff9b:1:1234::a9fe:a9fe]",
	} {
		require.Equal(t, "webhook.url_invalid", fault.CodeOf(s.Check("http://"+address+"/latest")), address)
	}
	for _, address := range []string{"10.1.2.3", "127.0.0.1", "100.100.100.201", "[fd00::1]", "[::1]", "[64:ff9b:1:808:8:800::]", "[64:ff9b:1:8:8:808::]", "[64:ff9b:1::8.8.8.8]"} {
		require.NoError(t, s.Check("http://"+address+"/"), address)
	}
	send := func(resolver *net.Resolver, name string) error {
		s := webhook.New(webhook.Config{AllowHTTP: true, AllowPrivateNetworks: true, Clock: testkit.NewClock(now), Resolver: resolver})
		_, err := s.Send(t.Context(), ports.WebhookRequest{URL: "http://" + name + "/", Timestamp: now, Timeout: waitFor})
		return err
	}
	refused := send(dnsServer(t, func(int32) netip.Addr { return netip.MustParseAddr("169.254.169.254") }), "hooks.example.org")
	unknown := send(nil, "hooks.invalid")
	require.Equal(t, unknown, refused)
	require.Equal(t, "webhook.dns", fault.CodeOf(refused))
}

func endpoint(t *testing.T, handler http.HandlerFunc) (address string, s *webhook.Sender) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL, webhook.New(webhook.Config{AllowHTTP: true, AllowPrivateNetworks: true, UserAgent: "Backbone", Clock: testkit.NewClock(now)})
}

func TestSend(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	address, s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusAccepted)
	})
	a, err := s.Send(t.Context(), ports.WebhookRequest{URL: address + "/hook?x=1", ID: "msg_1", Timestamp: now, Signature: "v1,abc v1,def", Body: []byte(`{"a":1}`), Timeout: waitFor})
	require.NoError(t, err)
	require.Equal(t, ports.WebhookAnswer{Status: 202, RetryAfter: 2 * time.Minute}, a)
	require.Equal(t, "POST", got.Method)
	require.Equal(t, "/hook?x=1", got.URL.RequestURI())
	require.JSONEq(t, `{"a":1}`, string(body))
	for name, want := range map[string]string{
		"webhook-id": "msg_1", "webhook-timestamp": "1772366400", "webhook-signature": "v1,abc v1,def", "Content-Type": "application/json", "User-Agent": "Backbone",
	} {
		require.Equal(t, want, got.Header.Get(name), name)
	}
}

func TestSend_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	address, s := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	a, err := s.Send(t.Context(), ports.WebhookRequest{URL: address, Timestamp: now, Timeout: waitFor})
	require.NoError(t, err)
	require.Equal(t, 307, a.Status)
	require.Equal(t, int32(1), calls.Load())
}

func TestSend_FailureCodes(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow, s := endpoint(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	cut, _ := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	})
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(secure.Close)
	for _, c := range []struct{ address, code string }{
		{slow, "webhook.timeout"}, {cut, "webhook.connection"}, {"http://127.0.0.1:1", "webhook.connection"}, {secure.URL, "webhook.tls"},
		{strings.Replace(slow, "http://", "https://", 1), "webhook.tls"}, {"ftp://x", "webhook.url_invalid"},
	} {
		timeout := waitFor
		if c.code == "webhook.timeout" {
			timeout = 100 * time.Millisecond
		}
		_, err := s.Send(t.Context(), ports.WebhookRequest{URL: c.address, Timestamp: now, Timeout: timeout})
		require.Equal(t, c.code, fault.CodeOf(err), c.address)
	}
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	trusting := webhook.New(webhook.Config{AllowPrivateNetworks: true, Roots: roots, Clock: testkit.NewClock(now)})
	a, err := trusting.Send(t.Context(), ports.WebhookRequest{URL: secure.URL, Timestamp: now, Timeout: waitFor})
	require.NoError(t, err)
	require.Equal(t, 200, a.Status)
}

func TestSend_RetryAfter(t *testing.T) {
	t.Parallel()
	var text atomic.Value
	address, s := endpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", text.Load().(string))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "99999999999999999999": 0, "9999999999": 24 * time.Hour, "soon": 0,
		now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		text.Store(header)
		a, err := s.Send(t.Context(), ports.WebhookRequest{URL: address, Timestamp: now, Timeout: waitFor})
		require.NoError(t, err)
		require.Equal(t, ports.WebhookAnswer{Status: 503, RetryAfter: want}, a, header)
	}
}
