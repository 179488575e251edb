package monitor

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/monitordb"
	"github.com/erpbackbone/backbone/domain/event"
)

// Distribution counts events by legal entity, type and stream. Counts of legal entities are
// exact. Counts of types are estimated from Sampled events, drawn evenly from all logs; if
// Exact, all events were read. With 4,000 samples a share of 10 % is right to about 1 %.
type Distribution struct {
	Events        int64         `json:"events"`
	Sampled       int64         `json:"sampled"`
	Exact         bool          `json:"exact"`
	LegalEntities []EntityShare `json:"legal_entities"` // the largest first
	EventTypes    []TypeShare   `json:"event_types"`
	StreamTypes   []TypeShare   `json:"stream_types"`
	Streams       []LargeStream `json:"largest_streams"` // the most frequent of the sample; their lengths are exact
	Keys          []KeyKind     `json:"keys"`            // empty until event_keys was analyzed
}

// EntityShare is the log of one legal entity.
type EntityShare struct {
	TenantID    string `json:"tenant"`
	LegalEntity string `json:"legal_entity"`
	Partition   int32  `json:"partition"`
	Events      int64  `json:"events"`
}

// TypeShare is the number of events of a type. PayloadBytes is the mean size of their
// payloads on disk.
type TypeShare struct {
	Type         string `json:"type"`
	Events       int64  `json:"events"`
	PayloadBytes int64  `json:"payload_bytes"`
}

// LargeStream identifies a stream by its first event, because stream ids may identify persons.
type LargeStream struct {
	LegalEntity   string `json:"legal_entity"`
	StreamType    string `json:"stream_type"`
	FirstSequence int64  `json:"first_sequence"`
	Events        int64  `json:"events"`
}

// KeyKind counts references to entities or tags of a kind, estimated from the planner's
// statistics, which hold only the most common keys.
type KeyKind struct {
	Kind       string `json:"kind"`        // such as "entity vendor" or "tag period"
	CommonKeys int32  `json:"common_keys"` // keys in the statistics
	Hottest    int64  `json:"hottest"`     // events of the most common one
	References int64  `json:"references"`  // events of all keys in the statistics
}

const (
	sampledEvents = 4000
	sampledLogs   = 200 // the largest
	shownStreams  = 10
	candidates    = 20
)

// Distribution reads at most about 4,000 events. Fault
// store.question_too_slow.
func (m *Monitor) Distribution(ctx context.Context) (Distribution, error) {
	out := Distribution{LegalEntities: []EntityShare{}, EventTypes: []TypeShare{}, StreamTypes: []TypeShare{}, Streams: []LargeStream{}, Keys: []KeyKind{}}
	heads, err := m.heads(ctx, "", "")
	if err != nil {
		return out, err
	}
	for _, h := range heads {
		n := int64(h.head.Sequence)
		out.Events += n
		out.LegalEntities = append(out.LegalEntities, EntityShare{TenantID: h.TenantID, LegalEntity: h.Code, Partition: h.PartitionID, Events: n})
	}
	slices.SortStableFunc(out.LegalEntities, func(a, b EntityShare) int { return cmp.Compare(b.Events, a.Events) })
	if err := m.sample(ctx, &out); err != nil {
		return out, err
	}
	kinds, err := m.queries.ListKeyKinds(ctx, m.conn)
	if err != nil {
		return out, monitorFault(ctx, err)
	}
	for _, k := range kinds {
		out.Keys = append(out.Keys, KeyKind{Kind: k.Kind, CommonKeys: k.Keys, Hottest: k.Hottest, References: k.ReferencesEstimated})
	}
	return out, nil
}

// tally sums sampled events, each weighted with the number of events that it represents.
type tally struct {
	events, bytes float64
}

type sampledStream struct {
	entity    EntityShare
	stream    event.StreamID
	sightings int
}

// sample draws one event from each of equally long ranges of sequences of every log.
func (m *Monitor) sample(ctx context.Context, out *Distribution) error {
	types, streamTypes := map[string]*tally{}, map[string]*tally{}
	streams := map[sampledStream]int{}
	for i, e := range out.LegalEntities {
		if e.Events == 0 || i == sampledLogs {
			break
		}
		wanted := stretches(e.Events, (sampledEvents*e.Events+out.Events-1)/out.Events)
		rows, err := m.queries.SampleEvents(ctx, m.conn, &monitordb.SampleEventsParams{Sequences: wanted, PartitionID: e.Partition})
		if err != nil {
			return monitorFault(ctx, err)
		}
		out.Sampled += int64(len(rows))
		weight := float64(e.Events) / float64(max(1, len(rows)))
		for k := range rows {
			r := &rows[k]
			count(types, r.Type, weight, r.PayloadBytes)
			count(streamTypes, r.StreamType, weight, r.PayloadBytes)
			streams[sampledStream{entity: e, stream: event.StreamID{Type: r.StreamType, ID: r.StreamID}}]++
		}
	}
	out.Exact = out.Sampled == out.Events
	out.EventTypes, out.StreamTypes = shares(types), shares(streamTypes)
	return m.largest(ctx, streams, out)
}

// stretches gives k sequences of 1 to n, one at random from each k-th part.
func stretches(n, k int64) []int64 {
	k = min(max(k, 1), n)
	out := make([]int64, k)
	for i := range k {
		first, last := i*n/k+1, (i+1)*n/k
		out[i] = first + rand.Int64N(last-first+1)
	}
	return out
}

func count(tallies map[string]*tally, name string, weight float64, bytes int32) {
	t := tallies[name]
	if t == nil {
		t = &tally{}
		tallies[name] = t
	}
	t.events += weight
	t.bytes += weight * float64(bytes)
}

func shares(tallies map[string]*tally) []TypeShare {
	out := make([]TypeShare, 0, len(tallies))
	for name, t := range tallies {
		out = append(out, TypeShare{Type: name, Events: int64(t.events + 0.5), PayloadBytes: int64(t.bytes/t.events + 0.5)})
	}
	slices.SortFunc(out, func(a, b TypeShare) int { return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Type, b.Type)) })
	return out
}

// largest reads the lengths of the streams with the most sampled events.
func (m *Monitor) largest(ctx context.Context, streams map[sampledStream]int, out *Distribution) error {
	seen := make([]sampledStream, 0, len(streams))
	for s, n := range streams {
		s.sightings = n
		seen = append(seen, s)
	}
	slices.SortFunc(seen, func(a, b sampledStream) int {
		return cmp.Or(cmp.Compare(b.sightings, a.sightings), cmp.Compare(a.stream.Type, b.stream.Type), cmp.Compare(a.stream.ID, b.stream.ID))
	})
	for _, s := range seen[:min(candidates, len(seen))] {
		if s.sightings < 2 && !out.Exact {
			break
		}
		size, err := m.queries.GetStreamSize(ctx, m.conn, &monitordb.GetStreamSizeParams{
			PartitionID: s.entity.Partition, StreamType: s.stream.Type, StreamID: s.stream.ID,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return monitorFault(ctx, err)
		}
		out.Streams = append(out.Streams, LargeStream{
			LegalEntity: s.entity.LegalEntity, StreamType: s.stream.Type, FirstSequence: size.FirstSequence, Events: size.Version,
		})
	}
	slices.SortStableFunc(out.Streams, func(a, b LargeStream) int { return cmp.Compare(b.Events, a.Events) })
	out.Streams = out.Streams[:min(shownStreams, len(out.Streams))]
	return nil
}

// Findings summarises the distribution.
func (d Distribution) Findings() []Finding {
	f := newFinding("distribution", "events", 0, 0, 0)
	if d.Events == 0 {
		return []Finding{f.with("", "no events in %d legal entities", len(d.LegalEntities))}
	}
	largest := d.LegalEntities[0]
	return []Finding{f.with("", "%d events in %d legal entities; %.0f %% in %s", d.Events, len(d.LegalEntities),
		100*float64(largest.Events)/float64(d.Events), largest.LegalEntity)}
}
