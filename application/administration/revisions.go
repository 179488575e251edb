package administration

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// maxRevisions is how many events of one stream are read: a request has some ten, of which only
// previews and approvals repeat.
const maxRevisions = 1000

// concern is something that AdoptRevisions has recorded for a tenant.
type concern struct{ tenantID, name string }

// Revisions implements ports.AdministrativeLog.
func (l *Log) Revisions(ctx context.Context, tenantID string, stream event.StreamID) ([]event.Recorded, error) {
	log, err := l.Of(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	return l.streams.EventsOfStream(ctx, log.Partition, stream, 1, maxRevisions)
}

// EventsOfTypes implements ports.AdministrativeLog.
func (l *Log) EventsOfTypes(ctx context.Context, tenantID string, types ...string) (all []event.Recorded, err error) {
	log, err := l.Of(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	for q := (ports.EventQuery{Partition: log.Partition, Types: types, Limit: pageEvents}); ; q.After = all[len(all)-1].Sequence {
		page, err := l.streams.Events(ctx, q)
		all = append(all, page...)
		if err != nil || len(page) < pageEvents {
			return all, err
		}
	}
}

// RecordRevision implements ports.AdministrativeLog. Of several nodes that record the same
// revision one does: the version of the stream settles it.
func (l *Log) RecordRevision(ctx context.Context, tenantID string, actor event.Actor, r ports.Revision) error {
	for try := 1; ; try++ {
		events, err := l.Revisions(ctx, tenantID, r.Stream)
		if err != nil {
			return err
		}
		expected := concurrency.NoStream()
		if n := len(events); n > 0 {
			last, err := revisionOf(&events[n-1])
			if err != nil || last >= r.Number {
				return err
			}
			expected = concurrency.Exactly(events[n-1].StreamVersion)
		}
		err = l.Record(ctx, tenantID, actor, concurrency.StreamExpectation{Stream: r.Stream, Expected: expected}, draft(r.Type, r.Stream, r.Data))
		if fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion || try == saveTries {
			return err
		}
	}
}

func revisionOf(e *event.Recorded) (int, error) {
	var data struct {
		Revision int `json:"revision"`
	}
	raw, err := e.Data()
	if err == nil {
		err = json.Unmarshal(raw, &data)
	}
	if err != nil {
		return 0, fault.New(fault.Internal, "administration.event_damaged", "an event of the administrative log cannot be read; run `backbone verify`").WithCause(err)
	}
	return data.Revision, nil
}

// AdoptRevisions implements ports.AdministrativeLog.
func (l *Log) AdoptRevisions(ctx context.Context, tenantID, name string, rows func(context.Context) ([]ports.Revision, error)) (event.Sequence, error) {
	key := concern{tenantID, name}
	l.mu.Lock()
	at, known := l.adopted[key]
	l.mu.Unlock()
	if known {
		return at, nil
	}
	log, err := l.Of(ctx, tenantID)
	if err != nil {
		return 0, err
	}
	err = l.adopt(ctx, log, name, func(ctx context.Context) ([]event.Draft, error) {
		revisions, err := rows(ctx)
		drafts := make([]event.Draft, len(revisions))
		for i, r := range revisions {
			drafts[i] = draft(r.Type, r.Stream, r.Data)
		}
		return drafts, err
	}, l.once)
	if err != nil {
		return 0, err
	}
	adopted, err := l.Revisions(ctx, tenantID, event.StreamID{Type: administrationStream, ID: name})
	if err != nil || len(adopted) == 0 {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adopted[key] = adopted[0].Sequence
	return adopted[0].Sequence, nil
}
