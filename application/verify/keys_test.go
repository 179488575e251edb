package verify_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// keyedEvent appends an event with references, tags and a business key, and stores its rows.
func (v *tamperedLog) keyedEvent(t *testing.T, le ports.LegalEntity, receipt string) {
	t.Helper()
	p := v.prepared(le)
	p.Tags = []string{"q1"}
	p.Payload = []byte(`{"data":{"receipt":"` + receipt + `","till":7},"dimensions":{},"entity_refs":[` +
		`{"entity_type":"till","entity_id":"T\u002d1","role":"subject"},{"entity_type":"clerk","entity_id":"C-1","role":"by"},{"entity_type":"till","entity_id":"T-1","role":"place"}]}`)
	p.PayloadHash = event.HashPayload(p.Salt, p.Payload)
	result, err := v.Append(t.Context(), ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{p}})
	require.NoError(t, err)
	n := result.Events[0].Sequence
	for _, key := range []string{"tag:q1", "entity:clerk:C-1", "entity:till:T-1"} {
		v.keys = append(v.keys, ports.EventKey{Sequence: n, TypeNumber: 3, Key: key})
	}
	v.claims = append(v.claims, ports.ClaimedKey{Sequence: n, EventID: p.ID, BusinessKey: event.BusinessKey{EventType: p.Type, Key: "receipt\x1f7\x1f" + receipt, Document: receipt}})
}

// TestRun_Keys changes rows of the key index and of business keys.
func TestRun_Keys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tamper func(*tamperedLog)
		want   []place
	}{
		"as they must be":      {func(*tamperedLog) {}, nil},
		"in another order":     {func(v *tamperedLog) { slices.Reverse(v.keys); slices.Reverse(v.claims) }, nil},
		"a key is missing":     {func(v *tamperedLog) { v.keys = v.keys[1:] }, []place{{verify.KeyMismatch, 1}}},
		"a key is there twice": {func(v *tamperedLog) { v.keys = append(v.keys, v.keys[4]) }, []place{{verify.KeyMismatch, 2}}},
		"another key":          {func(v *tamperedLog) { v.keys[0].Key = "tag:q2" }, []place{{verify.KeyMismatch, 1}}},
		"another type":         {func(v *tamperedLog) { v.keys[0].TypeNumber = 4 }, []place{{verify.KeyMismatch, 1}}},
		"a key of two events":  {func(v *tamperedLog) { v.keys[0].Sequence = 1500 }, []place{{verify.KeyMismatch, 1}, {verify.KeyMismatch, 1500}}},
		"a key of no event":    {func(v *tamperedLog) { v.keys[0].Sequence = 1501 }, []place{{verify.KeyMismatch, 0}, {verify.KeyMismatch, 1}}},
		"a key before all":     {func(v *tamperedLog) { v.keys[0].Sequence = 0 }, []place{{verify.KeyMismatch, 0}, {verify.KeyMismatch, 1}}},
		"a key far before all": {func(v *tamperedLog) { v.keys[0].Sequence = ^event.Sequence(4) }, []place{{verify.KeyMismatch, 0}, {verify.KeyMismatch, 1}}},
		"a claim is missing":   {func(v *tamperedLog) { v.claims = v.claims[:1] }, []place{{verify.BusinessKeyMismatch, 2}}},
		"another claim":        {func(v *tamperedLog) { v.claims[0].Key = "receipt\x1f7\x1fR-9" }, []place{{verify.BusinessKeyMismatch, 1}}},
		"another document":     {func(v *tamperedLog) { v.claims[0].Document = "R-9" }, []place{{verify.BusinessKeyMismatch, 1}}},
		"another event's id":   {func(v *tamperedLog) { v.claims[0].EventID = v.claims[1].EventID }, []place{{verify.BusinessKeyMismatch, 1}}},
		"claims of each other": {func(v *tamperedLog) { v.claims[0].Key, v.claims[1].Key = v.claims[1].Key, v.claims[0].Key }, []place{{verify.BusinessKeyMismatch, 1}, {verify.BusinessKeyMismatch, 2}}},
		"an unregistered type": {func(v *tamperedLog) {
			v.claims = append(v.claims, ports.ClaimedKey{BusinessKey: event.BusinessKey{EventType: "x.y.z"}})
		}, nil},
		"a claim of no event":   {func(v *tamperedLog) { v.claims[0].Sequence = 1501 }, []place{{verify.BusinessKeyMismatch, 0}, {verify.BusinessKeyMismatch, 1}}},
		"an edited event alone": {func(v *tamperedLog) { v.tamper = editReceipt }, []place{{verify.PayloadMismatch, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault()
			v.types = []eventtype.Registration{
				{Type: "till.cash.moved", SchemaVersion: 1, Number: 3, BusinessKeys: []eventtype.BusinessKeyRule{{Name: "receipt", Fields: []string{"till", "receipt"}, Document: "receipt"}}},
				{Type: "till.cash.counted", SchemaVersion: 1, Number: 4},
			}
			le := v.entity(t, "A", 0)
			for i := range 2 {
				v.keyedEvent(t, le, "R-"+strconv.Itoa(i))
			}
			v.grow(t, le, 1498)
			c.tamper(v)
			r := v.run(t)[0]
			require.Equal(t, append([]place{}, c.want...), places(r), "%v", r.Findings)
		})
	}
}

// editReceipt changes the payload of the first event, from which its keys follow.
func editReceipt(_ event.PartitionID, events []event.Recorded) []event.Recorded {
	events = slices.Clone(events)
	events[0].Payload = []byte(`{"data":{},"dimensions":{},"entity_refs":[]}`)
	return events
}

// requestedEvent appends an event that took a number and that a request asked for under a key.
func (v *tamperedLog) requestedEvent(t *testing.T, le ports.LegalEntity, key string, n int, expires time.Time) {
	t.Helper()
	p := v.prepared(le)
	drawn := testkit.Must(json.Marshal([]event.DrawnNumber{{Series: "R", Prefix: "R-", Number: event.SeriesNumber{Prefix: "R-", Width: 4}.Format(uint64(n))}}))
	p.Payload = append(append([]byte(`{"data":{},"dimensions":{},"entity_refs":[],"numbers":`), drawn...), '}')
	p.PayloadHash = event.HashPayload(p.Salt, p.Payload)
	r := ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{p}, Idempotency: &ports.IdempotencyClaim{Key: key, Digest: event.Hash{7}, ExpiresAt: expires}}
	require.NoError(t, module.BindRequest(&r))
	result, err := v.Append(t.Context(), r)
	require.NoError(t, err)
	stored := r.Idempotency.StoredHash()
	v.requests = append(v.requests, ports.RequestKey{Key: key, StoredHash: stored[:], First: result.Events[0].Sequence, EventCount: 1, ExpiresAt: event.Micros(expires), Bound: true})
	v.series = []ports.NumberSeries{{Series: "R", Next: uint64(n) + 1}}
}

// TestRun_NumbersAndRequests changes rows of series and of idempotency keys.
func TestRun_NumbersAndRequests(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(24 * time.Hour)
	for name, c := range map[string]struct {
		tamper func(*tamperedLog)
		want   []place
	}{
		"as they must be":         {func(*tamperedLog) {}, nil},
		"a series jumped":         {func(v *tamperedLog) { v.series[0].Next = 900 }, []place{{verify.NumberMismatch, 3}}},
		"a series was set back":   {func(v *tamperedLog) { v.series[0].Next = 3 }, []place{{verify.NumberMismatch, 3}}},
		"a series is missing":     {func(v *tamperedLog) { v.series = nil }, []place{{verify.NumberMismatch, 3}}},
		"a series nothing was of": {func(v *tamperedLog) { v.series = append(v.series, ports.NumberSeries{Series: "X", Next: 9}) }, []place{{verify.NumberMismatch, 0}}},
		"a series of before": {func(v *tamperedLog) {
			v.series = append(v.series, ports.NumberSeries{Series: "X", Next: 9, UnboundThrough: 8})
		}, nil},
		"earlier numbers are made up":  {func(v *tamperedLog) { v.series[0].UnboundThrough = 2 }, []place{{verify.NumberMismatch, 3}}},
		"a key is missing":             {func(v *tamperedLog) { v.requests = v.requests[1:] }, []place{{verify.RequestMismatch, 1}}},
		"a key of another event":       {func(v *tamperedLog) { v.requests[0].First = 2 }, []place{{verify.RequestMismatch, 1}, {verify.RequestMismatch, 2}}},
		"a key of more events":         {func(v *tamperedLog) { v.requests[1].First, v.requests[1].EventCount = 1, 2 }, []place{{verify.RequestMismatch, 2}}},
		"a key that expired too early": {func(v *tamperedLog) { v.requests[0].ExpiresAt = time.Now() }, []place{{verify.RequestMismatch, 1}}},
		"a key of no event":            {func(v *tamperedLog) { v.requests[0].First = 9 }, []place{{verify.RequestMismatch, 0}, {verify.RequestMismatch, 1}}},
		"a key from before":            {func(v *tamperedLog) { v.requests = append(v.requests, ports.RequestKey{Key: "old", ExpiresAt: later}) }, nil},
		"a key that expires":           {func(v *tamperedLog) { v.requests = v.requests[:3] }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault()
			le := v.entity(t, "A", 0)
			for n := range 3 {
				v.requestedEvent(t, le, strconv.Itoa(n), n+1, later)
			}
			p := v.prepared(le)
			r := ports.AppendRequest{Partition: le.Partition, Events: []event.Prepared{p}, Idempotency: &ports.IdempotencyClaim{Key: "soon", ExpiresAt: time.Now()}}
			require.NoError(t, module.BindRequest(&r))
			_, err := v.Append(t.Context(), r)
			require.NoError(t, err)
			c.tamper(v)
			report := v.run(t)[0]
			require.Equal(t, append([]place{}, c.want...), places(report), "%v", report.Findings)
		})
	}
}

// TestRun_GapInNumbers jumps a series before an event takes its next number.
func TestRun_GapInNumbers(t *testing.T) {
	t.Parallel()
	v := newVault()
	le := v.entity(t, "A", 0)
	for i, n := range []int{1, 2, 7} {
		v.requestedEvent(t, le, strconv.Itoa(i), n, time.Now().Add(24*time.Hour))
	}
	require.Equal(t, []place{{verify.NumberMismatch, 3}}, places(v.run(t)[0]))
}

// countedReads counts what is read of an administrative log and of the registries.
type countedReads struct {
	*tamperedLog
	log                event.PartitionID
	events, registries int
}

func (c *countedReads) ChainPage(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error) {
	page, err := c.tamperedLog.ChainPage(ctx, p, after, limit)
	if p == c.log {
		c.events += len(page)
	}
	return page, err
}

func (c *countedReads) RegistryRecord(ctx context.Context, tenantID string) (ports.RegistryRecord, error) {
	c.registries++
	return c.tamperedLog.RegistryRecord(ctx, tenantID)
}

// TestRun_ReadsTypesOnce reads the administrative log once for all legal entities of a tenant, although
// the run itself adds to it, and the types again when they may have changed.
func TestRun_ReadsTypesOnce(t *testing.T) {
	t.Parallel()
	v := newVault()
	log := v.entity(t, ports.AdministrativeCode, 300)
	codes := []string{"A", "B", "C"}
	for _, code := range codes {
		v.entity(t, code, 1)
	}
	run := func(after func()) (counted *countedReads) {
		counted = &countedReads{tamperedLog: v, log: log.Partition}
		var taken []string
		reports, err := verify.Run(t.Context(), counted, "acme", codes, nil, verify.Each(func(r *verify.EntityReport) error {
			require.True(t, r.Sound(), "%v", r.Findings)
			taken = append(taken, r.LegalEntity)
			after()
			return nil
		}))
		require.NoError(t, err)
		require.Empty(t, reports, "none is kept beside the one that was taken")
		require.Equal(t, codes, taken)
		return counted
	}
	counted := run(func() { v.grow(t, log, 1) })
	require.Equal(t, []int{300 + 1 + 1, 2}, []int{counted.events, counted.registries})
	counted = run(func() { v.recordEventType(t, log, "registered", `{}`) })
	require.Equal(t, 2+2+2, counted.registries)

	_, err := verify.Run(t.Context(), v, "acme", codes, nil, verify.Each(func(*verify.EntityReport) error { return context.Canceled }))
	require.ErrorIs(t, err, context.Canceled)
}
