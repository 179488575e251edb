package administration

import (
	"context"

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
	events, _, err := l.streams.ReadStream(ctx, ports.StreamQuery{Partition: log.Partition, Stream: stream, Limit: maxRevisions})
	if err == nil {
		err = checkPayloads(tenantID, events)
	}
	return events, err
}

// EventsOfTypes implements ports.AdministrativeLog.
func (l *Log) EventsOfTypes(ctx context.Context, tenantID string, types ...string) (all []event.Recorded, err error) {
	err = l.Each(ctx, tenantID, types, func(e *event.Recorded) error {
		all = append(all, *e)
		return nil
	})
	return all, err
}

// RecordRevision implements ports.AdministrativeLog. Of several nodes that record the same
// revision one does: the version of the stream settles it.
func (l *Log) RecordRevision(ctx context.Context, tenantID string, actor event.Actor, r ports.Revision) error {
	for try := 1; ; try++ {
		last, err := l.Latest(ctx, tenantID, r.Stream)
		if err != nil {
			return err
		}
		if last.StreamVersion > 0 {
			number, err := revisionOf(&last)
			if err != nil || number >= r.Number {
				return err
			}
		}
		expected := concurrency.StreamExpectation{Stream: r.Stream, Expected: expectVersion(last.StreamVersion)}
		err = l.Record(ctx, tenantID, actor, expected, draft(r.Type, r.Stream, r.Data))
		if fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion || try == saveTries {
			return err
		}
	}
}

func revisionOf(e *event.Recorded) (int, error) {
	var data struct {
		Revision int `json:"revision"`
	}
	if err := decode(e, &data); err != nil {
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
	}, l.appendIfAbsent)
	if err != nil {
		return 0, err
	}
	adopted, err := l.newest(ctx, log, event.StreamID{Type: administrationStream, ID: name})
	if err != nil || adopted.StreamVersion == 0 {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adopted[key] = adopted.Sequence
	return adopted.Sequence, nil
}
