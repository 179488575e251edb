package custom

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// handler folds events into the rows of one definition.
type handler struct {
	program *program
	tenant  string
	rows    ports.ProjectionRows
}

var (
	_ ports.ProjectionHandler  = (*handler)(nil)
	_ ports.ProjectionResetter = (*handler)(nil)
	_ ports.ProjectionTables   = (*handler)(nil)
)

// keyedEvent is an event with the key under which it counts.
type keyedEvent struct {
	key      string
	sequence event.Sequence
	document document
}

// selectEvents gives those of the events that count, in order.
func (p *program) selectEvents(ctx context.Context, tenant string, events []event.Recorded) (out []keyedEvent, err error) {
	for i := range events {
		e := &events[i]
		if e.Scope.TenantID != tenant {
			return nil, fault.New(fault.Internal, "projection.foreign_event", "an event of another tenant came to a projection; report it")
		}
		if len(p.filter.Types) > 0 && !slices.Contains(p.filter.Types, e.Type) {
			continue
		}
		shown, refs, err := newDocument(e)
		if err != nil {
			return nil, err
		}
		if !p.filter.Matches(&e.Skeleton, refs) {
			continue
		}
		key, counts, err := p.eventKey(ctx, shown)
		if err != nil {
			return nil, err
		}
		if counts {
			out = append(out, keyedEvent{key, e.Sequence, shown})
		}
	}
	return out, nil
}

// Apply implements ports.ProjectionHandler. Keys are found for the whole batch first, so
// that its rows are read and written at once.
func (h *handler) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	events, err := h.program.selectEvents(ctx, h.tenant, b.Events)
	if err != nil || len(events) == 0 {
		return err
	}
	keys := make([]string, 0, len(events))
	for _, e := range events {
		keys = append(keys, e.key)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	before, err := h.rows.LoadProjectionRows(ctx, tx, b, keys)
	if err != nil {
		return err
	}
	after, err := h.program.foldAll(ctx, events, before)
	if err != nil {
		return err
	}
	var rows []ports.ProjectionRow
	var gone []string
	for _, key := range keys {
		row, exists := after[key]
		_, existed := before[key]
		switch {
		case exists:
			rows = append(rows, row)
		case existed:
			gone = append(gone, key)
		}
	}
	return h.rows.StoreProjectionRows(ctx, tx, b, rows, gone)
}

// foldAll folds events in order into what their keys had before.
func (p *program) foldAll(ctx context.Context, events []keyedEvent, before map[string]ports.ProjectionRow) (map[string]ports.ProjectionRow, error) {
	after := make(map[string]ports.ProjectionRow, len(before))
	for key, row := range before {
		after[key] = row
	}
	for _, e := range events {
		var state json.RawMessage
		if row, exists := after[e.key]; exists {
			state = row.State
		}
		next, err := p.foldEvent(ctx, state, e.document)
		if err != nil {
			return nil, err
		}
		if next == nil {
			delete(after, e.key)
			continue
		}
		after[e.key] = ports.ProjectionRow{Key: e.key, State: next, Sequence: e.sequence}
	}
	return after, nil
}

// Reset implements ports.ProjectionResetter.
func (h *handler) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return h.rows.ForgetProjectionRows(ctx, tx, b)
}

// Tables implements ports.ProjectionTables.
func (h *handler) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{ports.ProjectionRowTable}
}
