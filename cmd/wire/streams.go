package wire

import (
	"context"

	eventappend "github.com/erpbackbone/backbone/application/append"
	streams "github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// streamWriter appends the events that change streams.
type streamWriter struct{ appends *eventappend.Service }

// Write implements streams.EventWriter.
func (w streamWriter) Write(ctx context.Context, r streams.EventWrite) (ports.AppendedEvent, bool, error) {
	receipts, replayed, err := w.appends.Append(ctx, eventappend.Request{
		LegalEntity: r.LegalEntity, Actor: r.Actor, PersonID: r.PersonID, Roles: r.Roles, Drafts: []event.Draft{r.Draft}, Streams: r.Expected,
		IdempotencyKey: r.IdempotencyKey, Digest: r.Fingerprint,
	})
	if err != nil {
		return ports.AppendedEvent{}, false, err
	}
	return receipts[0], replayed, nil
}
