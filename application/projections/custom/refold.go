package custom

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// RefoldConfig is what folding single rows anew needs.
type RefoldConfig struct {
	Store ports.RowRefolds
	// Log gives events as they are stored.
	Log interface {
		ports.EventSearcher
		ReadStream(ctx context.Context, q ports.StreamQuery) (events []event.Recorded, more bool, err error)
	}
	Records ports.PersonalRecords
	Letters ports.DeadLetters

	MaxEvents int // of the entity or person; 0 is 10,000
	MaxRead   int // events of the legal entity that are looked at; 0 is 200,000
}

const (
	refoldTries = 3
	refoldKeys  = 1000 // rows that are folded at once, and held in memory
	refoldPage  = 100  // events that are read at once
	refoldTail  = 500  // events that are read while the checkpoint is held
)

// Refold folds rows of a version anew to which events of an entity or about a person
// contributed, and tells how many they are. A key may join events of several entities, so
// these rows are folded from all events that count under their keys: the log is read from
// its beginning, up to the last events without holding up anybody. Faults:
// projection.target_too_large, projection.definition_unreadable, projection.changed,
// projection.fenced, and what the programs say of an event that the version has digested.
func (s *Service) Refold(ctx context.Context, p projection.Projection, o ports.RowsOf) (rows int, change ports.TargetChange, err error) {
	d, err := projection.ParseDefinition(p.Definition)
	if err != nil {
		return 0, change, err
	}
	read, err := s.Partitions(ctx, p)
	if err != nil || !p.Reads(o.Partition) || !slices.Contains(read, o.Partition) {
		return 0, change, err
	}
	compiled, err := compile(s.config.Compiler, d)
	if err != nil {
		return 0, change, err
	}
	for range refoldTries {
		r := &refold{service: s, program: compiled, definition: d, order: o, work: ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: o.Partition}}
		rows, change, err = r.run(ctx)
		if fault.CodeOf(err) != projection.CodeChanged {
			break
		}
	}
	return rows, change, err
}

// refold is one attempt.
type refold struct {
	service    *Service
	program    *program
	definition projection.Definition
	order      ports.RowsOf
	work       ports.ProjectionWork
	without    map[event.Sequence]bool // that the version has gone on without
	looked     int
}

func (r *refold) run(ctx context.Context) (rows int, change ports.TargetChange, err error) {
	c := r.service.config.Refold
	from, begun, err := c.Store.FoldPoint(ctx, r.work)
	if err != nil || !begun {
		return 0, change, err
	}
	if err := r.passedOver(ctx); err != nil {
		return 0, change, err
	}
	keys, err := r.keys(ctx, from.Sequence)
	if err != nil || len(keys) == 0 {
		return 0, change, err
	}
	f := &folding{program: r.program, tenant: r.definition.TenantID, wanted: keys, rows: map[string]ports.ProjectionRow{}}
	at, now := event.Sequence(0), from
	for {
		if err := r.read(ctx, f, at, now.Sequence); err != nil {
			if at > 0 && fault.CodeOf(err) != projection.CodeTargetTooLarge && !away(ctx, err) {
				err = projection.Changed() // the version has gone on without the event since
			}
			return 0, change, err
		}
		at = now.Sequence
		if now, begun, err = c.Store.FoldPoint(ctx, r.work); err != nil {
			return 0, change, err
		}
		if !begun || now.Generation != from.Generation || now.Redactions != from.Redactions || now.Sequence < at {
			return 0, change, projection.Changed()
		}
		if now.Sequence-at <= refoldTail {
			break
		}
	}
	var last *folding
	change, err = c.Store.RefoldRows(ctx, ports.RowRefold{
		ProjectionWork: r.work, Keys: slices.Sorted(maps.Keys(keys)), Since: from, Folded: at, Types: r.definition.Filter.Types, Limit: 2 * refoldTail,
		Digested: f.digested, DryRun: r.order.DryRun, By: r.order.By,
	}, func() (ports.ProjectionHandler, func() map[string]ports.ProjectionRow) {
		last = f.clone()
		return tail{r.service.config.Upcast(last)}, func() map[string]ports.ProjectionRow { return last.rows }
	})
	if err != nil {
		return 0, change, err
	}
	change.Events, change.PassedOver = last.events, last.lacking
	return len(keys), change, nil
}

// passedOver finds the events that the version has gone on without.
func (r *refold) passedOver(ctx context.Context) error {
	r.without = map[event.Sequence]bool{}
	q := ports.DeadLetterQuery{
		Kind: ports.LetterOfProjection, Name: r.work.Projection, Partitions: []event.PartitionID{r.work.Partition},
		Statuses: []string{ports.LetterPassed, ports.LetterSkipped}, Limit: 1000,
	}
	for {
		letters, err := r.service.config.Refold.Letters.ListDeadLetters(ctx, q)
		if err != nil {
			return err
		}
		for _, d := range letters {
			if d.Version == r.work.Version {
				r.without[d.Sequence] = true
			}
		}
		if len(letters) < q.Limit {
			return nil
		}
		q.After = &letters[len(letters)-1]
	}
}

// keys are those under which the events of the entity, or about the person, count.
func (r *refold) keys(ctx context.Context, through event.Sequence) (map[string]bool, error) {
	c := r.service.config.Refold
	find := &finding{program: r.program, tenant: r.definition.TenantID, keys: map[string]bool{}}
	seen := map[event.Sequence]bool{} // an event of the entity's stream may refer to the entity too
	look := func(events []event.Recorded) error {
		var fresh []event.Recorded
		for _, e := range events {
			if !seen[e.Sequence] && e.Sequence <= through {
				fresh = append(fresh, e)
			}
			seen[e.Sequence] = true
		}
		if len(seen) > c.MaxEvents {
			return projection.TargetTooLarge(c.MaxEvents)
		}
		err := r.hand(ctx, find, fresh)
		if err == nil && len(find.keys) > refoldKeys {
			err = projection.TargetTooLarge(refoldKeys)
		}
		return err
	}
	if r.order.Subject != "" {
		for after := event.Sequence(0); ; {
			events, err := c.Records.PersonalEvents(ctx, r.work.Partition, r.order.Subject, after, refoldPage)
			if err == nil {
				err = look(events)
			}
			if err != nil || len(events) < refoldPage {
				return find.keys, err
			}
			after = events[len(events)-1].Sequence
		}
	}
	stream := ports.StreamQuery{Partition: r.work.Partition, Stream: r.order.Entity, From: 1, Limit: refoldPage, Bytes: pageBytes}
	for {
		events, more, err := c.Log.ReadStream(ctx, stream)
		if err == nil {
			err = look(events)
		}
		if err != nil {
			return nil, err
		}
		if len(events) < refoldPage && !more {
			break
		}
		stream.From = events[len(events)-1].StreamVersion + 1
	}
	err := r.each(ctx, ports.EventQuery{Partition: r.work.Partition, Key: event.EntityKey(r.order.Entity.Type, r.order.Entity.ID), Until: through}, look)
	return find.keys, err
}

// each does something with all events that a query selects, page by page.
func (r *refold) each(ctx context.Context, q ports.EventQuery, do func([]event.Recorded) error) error {
	q.Limit, q.Bytes = refoldPage, pageBytes
	for {
		page, err := r.service.config.Refold.Log.SearchEvents(ctx, q, 0)
		if err == nil {
			err = do(page.Events)
		}
		switch {
		case err != nil:
			return err
		case page.Stopped:
			q.After = page.Reached
		case len(page.Events) == q.Limit:
			q.After = page.Events[len(page.Events)-1].Sequence
		default:
			return nil
		}
	}
}

// read hands over what the filter may choose, after a sequence and up to another.
func (r *refold) read(ctx context.Context, f *folding, after, through event.Sequence) error {
	if after >= through {
		return nil
	}
	q := candidates(r.definition, r.work.Partition)
	q.After, q.Until = after, through
	return r.each(ctx, q, func(events []event.Recorded) error {
		most := r.service.config.Refold.MaxRead
		if r.looked += len(events); r.looked > most {
			return projection.TargetTooLarge(most)
		}
		return r.hand(ctx, f, events)
	})
}

// hand hands events over in the version in which their type is read. Those that the
// version has gone on without come alone, and what fails of them is left out again.
func (r *refold) hand(ctx context.Context, to counter, events []event.Recorded) error {
	h := r.service.config.Upcast(to)
	b := ports.ProjectionBatch{Projection: r.work.Projection, Version: r.work.Version, Partition: r.work.Partition}
	for len(events) > 0 {
		n, alone := 0, r.without[events[0].Sequence]
		for n < len(events) && !r.without[events[n].Sequence] {
			n++
		}
		if alone {
			n = 1
		}
		b.Events = events[:n]
		err := h.Apply(ctx, nil, b)
		if alone {
			if err != nil && !away(ctx, err) {
				err = nil
			} else if err == nil {
				to.digest(events[0].Sequence)
			}
		}
		if err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// away tells whether an error is none of the event's.
func away(ctx context.Context, err error) bool {
	kind := fault.KindOf(err)
	return ctx.Err() != nil || kind == fault.Unavailable || kind == fault.Timeout
}

// counter is handed events.
type counter interface {
	ports.ProjectionHandler
	// digest hears that an event was digested that a version had gone on without.
	digest(s event.Sequence)
}

// finding finds keys.
type finding struct {
	program *program
	tenant  string
	keys    map[string]bool
}

func (f *finding) Apply(ctx context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	events, err := f.program.count(ctx, f.tenant, b.Events)
	for _, e := range events {
		f.keys[e.key] = true
	}
	return err
}

func (f *finding) digest(event.Sequence) {}

// folding folds the rows of some keys, without a transaction.
type folding struct {
	program  *program
	tenant   string
	wanted   map[string]bool
	rows     map[string]ports.ProjectionRow
	events   int  // that were folded
	lacking  int  // of the keys, that could not be
	last     bool // whether the last event was of the keys
	digested []event.Sequence
}

func (f *folding) clone() *folding {
	c := *f
	c.rows, c.digested = maps.Clone(f.rows), slices.Clone(f.digested)
	return &c
}

func (f *folding) digest(s event.Sequence) {
	if f.last {
		f.digested = append(f.digested, s)
	}
}

func (f *folding) Apply(ctx context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	f.last = false
	events, err := f.program.count(ctx, f.tenant, b.Events)
	if err != nil {
		return err
	}
	for _, e := range events {
		if f.last = f.wanted[e.key]; !f.last {
			continue
		}
		var state json.RawMessage
		if row, exists := f.rows[e.key]; exists {
			state = row.State
		}
		next, err := f.program.next(ctx, state, e.document)
		if err != nil {
			f.lacking++
			return err
		}
		f.events++
		if next == nil {
			delete(f.rows, e.key)
			continue
		}
		f.rows[e.key] = ports.ProjectionRow{Key: e.key, State: next, Sequence: e.sequence}
	}
	return nil
}

// tail is handed what came while the log was read. An event that fails there is one that
// the version has just gone on without: all is looked at again.
type tail struct{ ports.ProjectionHandler }

func (t tail) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	err := t.ProjectionHandler.Apply(ctx, tx, b)
	if err != nil && !away(ctx, err) {
		return projection.Changed()
	}
	return err
}
