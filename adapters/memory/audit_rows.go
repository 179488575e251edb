package memory

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// rowsOf iterates over what f lists of a partition.
func rowsOf[T any](ctx context.Context, s *state, id event.PartitionID, f func(p *partition) []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		rows, err := readPartition(ctx, s, id, func(p *partition) ([]T, error) { return f(p), nil })
		if err != nil {
			yield(*new(T), err)
			return
		}
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// PersonalRows implements ports.ChainAudit.
func (s *Audit) PersonalRows(ctx context.Context, id event.PartitionID, until event.Sequence) iter.Seq2[ports.PersonalRow, error] {
	return rowsOf(ctx, s.state, id, func(p *partition) (out []ports.PersonalRow) {
		for subject, records := range p.eventSubjects {
			for record, pointers := range records {
				if record.sequence <= until {
					out = append(out, ports.PersonalRow{Sequence: record.sequence, Subject: subject.String(), KeyClass: uint8(record.class), Pointers: slices.Clone(pointers)})
				}
			}
		}
		slices.SortFunc(out, func(a, b ports.PersonalRow) int {
			return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.KeyClass, b.KeyClass), cmp.Compare(a.Subject, b.Subject))
		})
		return out
	})
}

// PersonalKeys implements ports.ChainAudit.
func (s *Audit) PersonalKeys(ctx context.Context, id event.PartitionID, after ports.PersonalKey, limit int) ([]ports.PersonalKey, error) {
	return readPartition(ctx, s.state, id, func(p *partition) ([]ports.PersonalKey, error) {
		type key struct {
			subject shredding.Subject
			class   shredding.KeyClass
		}
		earliest := map[key]event.Sequence{}
		for subject, records := range p.intentSubjects {
			for record := range records {
				earliest[key{subject, record.class}] = 0
			}
		}
		for subject, records := range p.eventSubjects {
			for record := range records {
				k := key{subject, record.class}
				if n := earliest[k]; n == 0 || record.sequence < n {
					earliest[k] = record.sequence
				}
			}
		}
		out := []ports.PersonalKey{}
		for k, n := range earliest {
			if cmp.Or(cmp.Compare(k.subject, after.Subject), cmp.Compare(k.class, after.KeyClass)) > 0 {
				out = append(out, ports.PersonalKey{Subject: k.subject, KeyClass: k.class, First: n})
			}
		}
		slices.SortFunc(out, func(a, b ports.PersonalKey) int {
			return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.KeyClass, b.KeyClass))
		})
		return first(out, limit), nil
	})
}

// EventKeys implements ports.ChainAudit.
func (s *Audit) EventKeys(ctx context.Context, id event.PartitionID, from, through event.Sequence) iter.Seq2[ports.EventKey, error] {
	return rowsOf(ctx, s.state, id, func(p *partition) (out []ports.EventKey) {
		for key, sequences := range p.byKey {
			for _, n := range sequences {
				if n >= from && n <= through {
					out = append(out, ports.EventKey{Sequence: n, TypeNumber: s.typeNames[p.at(n).Type].Number, Key: key})
				}
			}
		}
		return out
	})
}

// BusinessKeys implements ports.ChainAudit.
func (s *Audit) BusinessKeys(ctx context.Context, id event.PartitionID, from, through event.Sequence) iter.Seq2[ports.ClaimedKey, error] {
	return rowsOf(ctx, s.state, id, func(p *partition) (out []ports.ClaimedKey) {
		for key, holder := range p.business {
			n, _ := strconv.ParseUint(holder.Sequence, 10, 64) // claimBusinessKeys has written it
			if at := event.Sequence(n); at >= from && at <= through {
				out = append(out, ports.ClaimedKey{Sequence: at, EventID: p.at(at).ID, BusinessKey: event.BusinessKey{EventType: key.eventType, Key: key.key, Document: holder.DocumentID}})
			}
		}
		return out
	})
}

// RequestKeys implements ports.ChainAudit.
func (s *Audit) RequestKeys(ctx context.Context, id event.PartitionID) iter.Seq2[ports.RequestKey, error] {
	return rowsOf(ctx, s.state, id, func(p *partition) (out []ports.RequestKey) {
		for key, row := range p.idempotency {
			out = append(out, ports.RequestKey{
				Key: key, StoredHash: row.outcome.StoredHash[:], IntentID: row.outcome.IntentID, First: row.outcome.FirstSequence, EventCount: row.outcome.EventCount,
				ExpiresAt: row.expiresAt, Bound: row.outcome.EventCount > 0,
			})
		}
		return out
	})
}

// NumberSeries implements ports.ChainAudit.
func (s *Audit) NumberSeries(ctx context.Context, id event.PartitionID) ([]ports.NumberSeries, error) {
	return readPartition(ctx, s.state, id, func(p *partition) ([]ports.NumberSeries, error) {
		out := []ports.NumberSeries{}
		for _, series := range slices.Sorted(maps.Keys(p.series)) {
			out = append(out, ports.NumberSeries{Series: series, Next: p.series[series] + 1})
		}
		return out, nil
	})
}

// Readers implements ports.ChainAudit.
func (s *Audit) Readers(ctx context.Context, id event.PartitionID) ([]ports.LogReader, error) {
	return get(ctx, s.state, func() ([]ports.LogReader, error) {
		out := []ports.LogReader{}
		for _, c := range s.checkpoints {
			if c.Partition == id {
				out = append(out, ports.LogReader{Name: c.Projection + " version " + strconv.Itoa(c.Version), Sequence: c.Sequence})
			}
		}
		for _, c := range s.publishers {
			if c.Partition == id {
				out = append(out, ports.LogReader{Name: "publisher " + c.Publisher, Sequence: c.PublishedThrough})
			}
		}
		for _, k := range s.subscriptions {
			if d := k.cursors[id]; d != nil {
				out = append(out, ports.LogReader{Name: "subscription " + k.definition.TenantID + "/" + k.definition.ID, Sequence: d.cursor.ReadThrough})
			}
		}
		slices.SortFunc(out, func(a, b ports.LogReader) int { return cmp.Compare(a.Name, b.Name) })
		return out, nil
	})
}

// DeliveryDamage implements ports.ChainAudit. There are no rows that contradict each other.
func (s *Audit) DeliveryDamage(ctx context.Context, _ event.PartitionID, _ int) ([]ports.DeliveryDamage, error) {
	return nil, ctx.Err()
}

// UnlistedPartitions implements ports.ChainAudit. Every log is of a legal entity.
func (s *Audit) UnlistedPartitions(ctx context.Context) ([]event.PartitionID, error) {
	return nil, ctx.Err()
}

// CountEvents implements ports.ChainAudit.
func (s *Audit) CountEvents(ctx context.Context, id event.PartitionID, until event.Sequence) (uint64, error) {
	return readPartition(ctx, s.state, id, func(p *partition) (uint64, error) { return min(uint64(until), uint64(len(p.events))), nil })
}

// ExtraPayloads implements ports.ChainAudit. Events hold their payloads.
func (s *Audit) ExtraPayloads(ctx context.Context, _ event.PartitionID, _ int) ([]event.Sequence, error) {
	return nil, ctx.Err()
}

// streamRow is the state of a stream with its first and last event.
func (p *partition) streamRow(id event.StreamID) ports.StreamRow {
	sequences, changed := p.byStream[id], p.streams[id]
	return ports.StreamRow{Stream: id, First: sequences[0], Last: sequences[len(sequences)-1], StreamStatus: ports.StreamStatus{
		State: p.streamState(id), Version: event.Version(len(sequences)), ReadableFrom: changed.readableFrom, Settings: slices.Clone(changed.settings), MetadataVersion: changed.metadataVersion,
	}}
}

// StreamRows implements ports.ChainAudit.
func (s *Audit) StreamRows(ctx context.Context, id event.PartitionID, streams []event.StreamID) ([]ports.StreamRow, error) {
	return readPartition(ctx, s.state, id, func(p *partition) (out []ports.StreamRow, err error) {
		for _, stream := range streams {
			if len(p.byStream[stream]) > 0 {
				out = append(out, p.streamRow(stream))
			}
		}
		return out, nil
	})
}

// StreamRowsWithEnds implements ports.ChainAudit.
func (s *Audit) StreamRowsWithEnds(ctx context.Context, id event.PartitionID, from event.StreamID, limit int) (ports.StreamRowPage, error) {
	return readPartition(ctx, s.state, id, func(p *partition) (page ports.StreamRowPage, err error) {
		compare := func(a, b event.StreamID) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID)) }
		typeAt := func(sequences []event.Sequence, v event.Version) string {
			if v == 0 {
				return ""
			}
			return p.at(sequences[v-1]).Type
		}
		for _, stream := range slices.SortedFunc(maps.Keys(p.byStream), compare) {
			if compare(stream, from) < 0 {
				continue
			}
			if full(len(page.Rows), limit) {
				page.Next = stream
				break
			}
			row, sequences := p.streamRow(stream), p.byStream[stream]
			last := p.at(row.Last)
			page.Rows = append(page.Rows, ports.StreamRowWithEnds{
				StreamRow: row, FirstEvent: row.First, LastEvent: row.Last, LastEventVersion: last.StreamVersion, LastEventType: last.Type,
				MetadataEventType: typeAt(sequences, row.MetadataVersion), ReadableEventType: typeAt(sequences, row.ReadableFrom),
			})
		}
		return page, nil
	})
}

// CountStreamRows implements ports.ChainAudit.
func (s *Audit) CountStreamRows(ctx context.Context, id event.PartitionID, until event.Sequence) (uint64, error) {
	return readPartition(ctx, s.state, id, func(p *partition) (n uint64, err error) {
		for _, sequences := range p.byStream {
			if sequences[0] <= until {
				n++
			}
		}
		return n, nil
	})
}

// Chains are the stores that a verification reads.
type Chains struct {
	*Audit
	*Directory
	redactionReader
	ports.IntentAudit
	ports.AccessReader
	ports.PaperAudit
	headReader
	registryReader
	subscriptionReader
	webhookReader
	projectionReader
}

type redactionReader interface {
	Redactions(ctx context.Context, p event.PartitionID) ([]ports.Redaction, error)
}

type headReader interface {
	Head(ctx context.Context, p event.PartitionID) (ports.Head, error)
}

type registryReader interface {
	EventTypeNumbers(ctx context.Context, names []string) (map[string]ports.EventTypeName, error)
	RegistryRecord(ctx context.Context, tenantID string) (ports.RegistryRecord, error)
}

type subscriptionReader interface {
	ports.FormerDecisions
	Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error)
}

type webhookReader interface {
	WebhookEndpoints(ctx context.Context, tenantID string) ([]ports.WebhookEndpoint, error)
}

type projectionReader interface {
	ports.DeadLetters
	ListProjections(ctx context.Context) ([]projection.Projection, error)
}

// Chains returns the stores that a verification reads.
func (d *Database) Chains() Chains {
	return Chains{d.Audit, d.Directory, d.Redactions, d.Intents, d.AccessLog, d.Papers, d.Events, d.Registry, d.Subscriptions, d.Webhooks, d.ProjectionVersions}
}

// Segments implements ports.ArchivedSegments: payloads in memory are not archived.
func (s *Audit) Segments(context.Context, event.PartitionID, event.Sequence, int) ([]ports.ArchivedSegment, error) {
	return nil, nil
}
