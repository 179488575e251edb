package e2e

import (
	"encoding/json"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	broker "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// published is a message of the stream.
type published struct {
	subject, id, sequence string
	body                  map[string]any
	text                  string
}

// jetStreams connects to a broker, with a long timeout for a busy one.
func jetStreams(t *testing.T, address string) (jetstream.JetStream, *broker.Conn) {
	t.Helper()
	conn, err := broker.Connect(address, broker.Timeout(endTime))
	require.NoError(t, err)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(endTime))
	require.NoError(t, err)
	return js, conn
}

// consume reads a stream from its beginning until it has n messages.
func consume(t *testing.T, address string, n int) []published {
	t.Helper()
	js, conn := jetStreams(t, address)
	defer conn.Close()
	var out []published
	testkit.Eventually(t, firstStart, func() bool {
		stream, err := js.Stream(t.Context(), "BACKBONE")
		return err == nil && stream.CachedInfo().State.Msgs >= uint64(n)
	}, "messages in the stream")
	consumer, err := js.OrderedConsumer(t.Context(), "BACKBONE", jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	require.NoError(t, err)
	messages, err := consumer.Messages()
	require.NoError(t, err)
	defer messages.Stop()
	for len(out) < n {
		m, err := messages.Next(jetstream.NextMaxWait(firstStart))
		require.NoError(t, err)
		p := published{subject: m.Subject(), id: m.Headers().Get("ce-id"), sequence: m.Headers().Get("ce-sequence"), text: string(m.Data())}
		require.NoError(t, json.Unmarshal(m.Data(), &p.body))
		out = append(out, p)
	}
	return out
}

// TestFanOut follows an invoice to a NATS stream, also over restarts of server and broker.
func TestFanOut(t *testing.T) {
	t.Parallel()
	dir := copyOfBooks(t)
	require.NoError(t, natsServer())
	d, err := startDev(program(t), dir, recoveryStart, "--nats")
	require.NoError(t, err)
	require.NotEmpty(t, d.NATS)
	u, err := url.Parse(d.NATS)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", u.Hostname())

	d.as(t, "vendor_admin").must(t, "USMF", "ap.register_vendor", object{"vendor_id": "V-FAN", "name": "Fan-out Ltd", "country": "US"})
	d.as(t, "ap_clerk").must(t, "USMF", "ap.submit_invoice", invoice("V-FAN", "FAN-1"))
	registerPersons(t, d.as(t, "admin"))
	person := d.as(t, "module").record(t, person("USMF", "E-FAN", object{"name": "Ada Fanout", "remark": "public"}))[0]
	heads := func() (n int) {
		for _, p := range fanoutStatus(t, dir) {
			n += p.Head
		}
		return n
	}
	total := heads()
	require.Positive(t, total)
	messages := consume(t, d.NATS, total)
	last := map[string]string{}
	seen := map[string]bool{}
	found, masked := false, false
	for _, m := range messages {
		require.True(t, strings.HasPrefix(m.subject, "backbone."+d.Tenant+"."), m.subject)
		entity := strings.Split(m.subject, ".")[2]
		require.Greater(t, m.sequence, last[entity], "out of order in %s", entity)
		last[entity] = m.sequence
		require.False(t, seen[m.id])
		seen[m.id] = true
		require.Equal(t, m.id, m.body["id"])
		require.NotContains(t, m.text, `"$pii"`, "a sealed value was published")
		found = found || strings.Contains(m.text, "FAN-1")
		if m.id == person {
			masked = strings.Contains(m.text, `"name":"[MASKED]"`) && strings.Contains(m.text, `"remark":"public"`)
		}
		require.NotContains(t, m.text, "Ada Fanout", "a personal value was published")
	}
	require.True(t, found, "the invoice is not in the stream")
	require.True(t, masked, "the person's event is not in the stream as it should be")
	testkit.Eventually(t, firstStart, func() bool {
		for _, p := range fanoutStatus(t, dir) {
			if p.LagEvents != 0 {
				return false
			}
		}
		return true
	}, "cursors at the heads")

	// kill -9: no event is lost or repeated.
	require.NoError(t, d.signal(syscall.SIGKILL))
	<-d.ended
	again, err := startDev(program(t), dir, recoveryStart, "--nats")
	require.NoError(t, err)
	if d.NATS != again.NATS { // it is kept unless another program took the port
		other, err := net.Dial("tcp", u.Host)
		require.NoError(t, err, "%s is free, and %s is another address", d.NATS, again.NATS)
		require.NoError(t, other.Close())
	}
	again.as(t, "ap_clerk").must(t, "USMF", "ap.submit_invoice", invoice("V-FAN", "FAN-2"))
	more := heads()
	require.Greater(t, more, total)
	after := consume(t, again.NATS, more)
	for i, m := range messages {
		require.Equal(t, m.id, after[i].id)
	}
	found = false
	for _, m := range after[total:] {
		require.False(t, seen[m.id], "published twice")
		found = found || strings.Contains(m.text, "FAN-2")
	}
	require.True(t, found)
	code, err := again.interrupt()
	require.NoError(t, err)
	require.Zero(t, code)
}

type fanoutLine struct {
	LegalEntity string `json:"legal_entity"`
	Head        int    `json:"head,string"`
	LagEvents   int    `json:"lag_events"`
}

// fanoutStatus runs `backbone fanout status`.
func fanoutStatus(t *testing.T, dir string) []fanoutLine {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t), "fanout", "status", "--data-dir", dir, "--json")
	cmd.Env = cleanEnvironment()
	out, err := cmd.Output()
	require.NoError(t, err)
	var answer struct {
		Partitions []fanoutLine `json:"partitions"`
	}
	require.NoError(t, json.Unmarshal(out, &answer))
	return answer.Partitions
}
