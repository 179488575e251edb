package wire

import (
	"context"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// paperWriter appends the events of papers.
type paperWriter struct{ appends *eventappend.Service }

// AppendPaper implements papers.Appender.
func (w paperWriter) AppendPaper(ctx context.Context, le ports.LegalEntity, actor event.Actor, d event.Draft, expected concurrency.StreamExpectation) error {
	_, _, err := w.appends.Append(ctx, eventappend.Request{LegalEntity: le, Actor: actor, Drafts: []event.Draft{d}, Streams: []concurrency.StreamExpectation{expected}})
	return err
}
