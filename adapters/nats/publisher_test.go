package nats_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/nats"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/testkit/natstest"
)

// waitFor bounds what must end by itself.
const waitFor = time.Minute

func server(t *testing.T) *natstest.Server {
	t.Helper()
	s, err := natstest.Start(natstest.Config{Directory: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

// jetStream connects to a server as a consumer does.
func jetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	conn, err := client.Connect(url)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(waitFor))
	require.NoError(t, err)
	return js
}

// publisher opens a publisher of the stream BACKBONE. Its timeout is long enough for a server
// whose disk is busy, since each message is synced.
func publisher(t *testing.T, c nats.Config) *nats.Publisher {
	t.Helper()
	c.Stream, c.SubjectPrefix = cmp.Or(c.Stream, "BACKBONE"), cmp.Or(c.SubjectPrefix, "backbone")
	c.Replicas, c.Batch = cmp.Or(c.Replicas, 1), cmp.Or(c.Batch, 256)
	c.Timeout, c.DuplicateWindow = cmp.Or(c.Timeout, waitFor/2), cmp.Or(c.DuplicateWindow, 2*time.Minute)
	p, err := nats.Open(c)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// awaitConnection waits until the publisher has reached its stream.
func awaitConnection(t *testing.T, p *nats.Publisher) {
	t.Helper()
	testkit.EventuallyNoError(t, waitFor, func() error { return p.Verify(t.Context()) })
}

func messages(from, to int) []ports.Message {
	out := make([]ports.Message, 0, to-from+1)
	for n := from; n <= to; n++ {
		e := event.Skeleton{
			Partition: 7, Sequence: event.Sequence(n), ID: event.ID{15: byte(n), 14: byte(n >> 8)}, Type: fmt.Sprintf("ap.invoice.t%d", n%3), SchemaVersion: 2,
			Scope: event.Scope{TenantID: "acme", LegalEntity: "USMF"}, Stream: event.StreamID{Type: "invoice", ID: "I-1"}, StreamVersion: event.Version(n),
			OccurredAt: time.Date(2026, 3, 1, 12, 0, 0, n*1000, time.UTC), CorrelationID: "c-1",
		}
		out = append(out, ports.Message{Skeleton: e, Body: fmt.Appendf(nil, `{"sequence":"%d"}`, n)})
	}
	return out
}

// storedSequences reads the sequences that a stream holds, in its order.
func storedSequences(t *testing.T, js jetstream.JetStream, name string) []int {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	require.NoError(t, err)
	out := []int{}
	for n := uint64(1); n <= s.CachedInfo().State.LastSeq; n++ {
		m, err := s.GetMsg(t.Context(), n)
		require.NoError(t, err)
		var body struct {
			Sequence int `json:"sequence,string"`
		}
		require.NoError(t, json.Unmarshal(m.Data, &body))
		out = append(out, body.Sequence)
	}
	return out
}

func count(from, to int) []int {
	out := []int{}
	for n := from; n <= to; n++ {
		out = append(out, n)
	}
	return out
}

func TestPublisher_MessageIsCloudEvent(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := publisher(t, nats.Config{URLs: []string{s.URL()}})
	awaitConnection(t, p)
	m := messages(42, 42)
	m[0].Scope.LegalEntity = "US MF"
	m[0].Stream.ID = "50% \"größe\""
	m[0].CausedBy = ulid.MustParse("01ARZ3NDEKTSV4RRFFQ69G5FAV")
	done, err := p.Publish(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, ports.Published{Stored: 1}, done)
	stream, err := jetStream(t, s.URL()).Stream(t.Context(), "BACKBONE")
	require.NoError(t, err)
	got, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "backbone.acme.US%20MF.ap.invoice.t0", got.Subject)
	require.JSONEq(t, `{"sequence":"42"}`, string(got.Data))
	headers := map[string]string{}
	for name, values := range got.Header {
		require.Len(t, values, 1)
		headers[name] = values[0]
	}
	require.Equal(t, map[string]string{
		"Nats-Msg-Id": m[0].ID.String(), "Nats-Expected-Stream": "BACKBONE",
		"ce-specversion": "1.0", "ce-id": m[0].ID.String(), "ce-source": "/tenants/acme/legal-entities/US%2520MF", "ce-type": "ap.invoice.t0",
		"ce-subject": "invoice/50%25%20%22gr%C3%B6%C3%9Fe%22", "ce-time": "2026-03-01T12:00:00.000042Z", "ce-datacontenttype": "application/json",
		"ce-tenantid": "acme", "ce-legalentity": "US%20MF", "ce-sequence": "00000000000000000042", "ce-partitionkey": "invoice/50%25%20%22gr%C3%B6%C3%9Fe%22",
		"ce-streamversion": "42", "ce-schemaversion": "2", "ce-recordedtime": "0001-01-01T00:00:00Z", "ce-correlationid": "c-1",
		"ce-causedby": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
	}, headers)
}

func TestPublisher_Batches(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := publisher(t, nats.Config{URLs: []string{s.URL()}, Limits: nats.Limits{Batch: 50}})
	awaitConnection(t, p)
	ctx := t.Context()
	done, err := p.Publish(ctx, messages(1, 120))
	require.NoError(t, err)
	require.Equal(t, ports.Published{Stored: 120}, done)
	// After a lost answer the same messages are published again, with more.
	done, err = p.Publish(ctx, messages(111, 170))
	require.NoError(t, err)
	require.Equal(t, ports.Published{Stored: 60, Duplicates: 10}, done)
	done, err = p.Publish(ctx, messages(1, 170))
	require.NoError(t, err)
	require.Equal(t, ports.Published{Stored: 170, Duplicates: 170}, done)
	require.Equal(t, count(1, 170), storedSequences(t, jetStream(t, s.URL()), "BACKBONE"))
}

func TestPublisher_StreamWithoutAtomicBatches(t *testing.T) {
	t.Parallel()
	s := server(t)
	js := jetStream(t, s.URL())
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OLD", Subjects: []string{"erp.>"}, Duplicates: time.Hour})
	require.NoError(t, err)
	p := publisher(t, nats.Config{URLs: []string{s.URL()}, Stream: "OLD", SubjectPrefix: "erp.events"})
	awaitConnection(t, p)
	done, err := p.Publish(t.Context(), messages(1, 30))
	require.NoError(t, err)
	require.Equal(t, ports.Published{Stored: 30}, done)
	done, err = p.Publish(t.Context(), messages(20, 40))
	require.NoError(t, err)
	require.Equal(t, ports.Published{Stored: 21, Duplicates: 11}, done)
	require.Equal(t, count(1, 40), storedSequences(t, js, "OLD"))
}

func TestPublisher_TooLargeMessage(t *testing.T) {
	t.Parallel()
	s := server(t)
	js := jetStream(t, s.URL())
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "BACKBONE", Subjects: []string{"backbone.>"}, MaxMsgSize: 10_000, AllowAtomicPublish: true, Duplicates: time.Hour})
	require.NoError(t, err)
	p := publisher(t, nats.Config{URLs: []string{s.URL()}})
	awaitConnection(t, p)
	m := messages(1, 5)
	m[3].Body = []byte(`"` + strings.Repeat("x", 10_000) + `"`)
	done, err := p.Publish(t.Context(), m)
	require.Equal(t, "publisher.too_large", fault.CodeOf(err))
	require.Equal(t, ports.Published{Stored: 3}, done)
	require.Equal(t, count(1, 3), storedSequences(t, js, "BACKBONE"))
}

func TestVerify_Refusals(t *testing.T) {
	t.Parallel()
	s := server(t)
	js := jetStream(t, s.URL())
	for i, c := range []struct {
		stream jetstream.StreamConfig
		reason string
	}{
		{jetstream.StreamConfig{Subjects: []string{"other.x.>"}}, "does not take the subjects p1.>"},
		{jetstream.StreamConfig{Duplicates: time.Minute}, "duplicate_window"},
		{jetstream.StreamConfig{NoAck: true}, "acknowledges nothing"},
		{jetstream.StreamConfig{MaxMsgsPerSubject: 1}, "keeps only some"},
	} {
		c.stream.Name = fmt.Sprintf("S%d", i+1)
		prefix := fmt.Sprintf("p%d", i+1)
		if c.stream.Subjects == nil {
			c.stream.Subjects = []string{prefix + ".>"}
		}
		if c.stream.Duplicates == 0 {
			c.stream.Duplicates = time.Hour
		}
		_, err := js.CreateStream(t.Context(), c.stream)
		require.NoError(t, err)
		p := publisher(t, nats.Config{URLs: []string{s.URL()}, Stream: c.stream.Name, SubjectPrefix: prefix, Limits: nats.Limits{DuplicateWindow: 10 * time.Minute}})
		testkit.Eventually(t, waitFor, func() bool {
			_, err = p.Publish(t.Context(), messages(1, 1))
			return fault.CodeOf(err) == "publisher.refused"
		})
		require.ErrorContains(t, err, c.reason)
	}
	// One server cannot keep three copies.
	p := publisher(t, nats.Config{URLs: []string{s.URL()}, Stream: "R3", SubjectPrefix: "r3", Limits: nats.Limits{Replicas: 3}})
	testkit.Eventually(t, waitFor, func() bool { return fault.CodeOf(p.Verify(t.Context())) == "publisher.refused" })
}

func TestDrillBrokerRestart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	_, text, err := net.SplitHostPort(testkit.Address(t))
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	first, err := natstest.Start(natstest.Config{Directory: folder, Port: port, User: "backbone", Password: "pa:ss"})
	require.NoError(t, err)
	back := make(chan struct{}, 10)
	p := publisher(t, nats.Config{URLs: []string{first.URL()}, Reconnected: func() { back <- struct{}{} }})
	awaitConnection(t, p)
	<-back
	done, err := p.Publish(t.Context(), messages(1, 20))
	require.NoError(t, err)
	require.Equal(t, 20, done.Stored)
	first.Stop()
	_, err = p.Publish(t.Context(), messages(21, 40))
	require.Equal(t, "publisher.unavailable", fault.CodeOf(err))
	second, err := natstest.Start(natstest.Config{Directory: folder, Port: port, User: "backbone", Password: "pa:ss"})
	require.NoError(t, err)
	t.Cleanup(second.Stop)
	<-back
	testkit.EventuallyNoError(t, waitFor, func() error {
		_, err := p.Publish(t.Context(), messages(15, 40))
		return err
	})
	require.Equal(t, count(1, 40), storedSequences(t, jetStream(t, second.URL()), "BACKBONE"))
}

func TestPublisher_BrokerUnavailable(t *testing.T) {
	t.Parallel()
	p := publisher(t, nats.Config{URLs: []string{"nats://127.0.0.1:1"}, Limits: nats.Limits{Timeout: 100 * time.Millisecond}})
	_, err := p.Publish(t.Context(), messages(1, 1))
	require.Equal(t, "publisher.unavailable", fault.CodeOf(err))
	_, err = nats.Open(nats.Config{
		URLs: []string{"nats://127.0.0.1:1"}, CAFile: "/does/not/exist", Stream: "BACKBONE", SubjectPrefix: "backbone",
		Limits: nats.Limits{Replicas: 1, DuplicateWindow: time.Minute, Timeout: time.Second, Batch: 1},
	})
	require.Equal(t, "publisher.config_invalid", fault.CodeOf(err))
	_, err = nats.Open(nats.Config{URLs: []string{"nats://127.0.0.1:1"}})
	require.ErrorContains(t, err, "Replicas is 0")
}

// TestOpenRefusesMissingLimits checks that a limit which the caller left out is no default.
func TestOpenRefusesMissingLimits(t *testing.T) {
	t.Parallel()
	c := nats.Config{URLs: []string{"nats://127.0.0.1:1"}, Limits: nats.Limits{Replicas: 1, DuplicateWindow: time.Minute, Timeout: time.Second, Batch: 1}}
	_, err := nats.Open(c)
	require.ErrorContains(t, err, "Stream")
	c.Batch = 0
	_, err = nats.Open(c)
	require.ErrorContains(t, err, "Batch")
}
