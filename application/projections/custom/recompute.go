package custom

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// RecomputeConfig configures the recomputation of single rows.
type RecomputeConfig struct {
	Store ports.RowRecomputer
	// Log reads stored events.
	Log interface {
		ports.EventSearcher
		ReadStream(ctx context.Context, q ports.StreamQuery) (events []event.Recorded, more bool, err error)
	}
	Records ports.PersonalRecords
	Letters ports.DeadLetters

	RecomputeLimits
}

// RecomputeLimits bounds the time of a recomputation. Both limits must be positive.
type RecomputeLimits struct {
	MaxEvents int // of the entity or person
	MaxRead   int // events of the legal entity that are read to find those of a key
}

const (
	recomputeTries = 3
	recomputeKeys  = 1000 // rows of one recomputation, which are held in memory
	recomputePage  = 100  // events of a page
	recomputeTail  = 500  // events that are read under the lock of the checkpoint
)

// Recompute rebuilds the rows of a version to which events of an entity or about a person
// contributed, and returns their number. A key may join events of several entities, so it folds
// all events that count under these keys: it reads the log from the beginning, and locks the
// checkpoint only for the last events. Faults: projection.target_too_large,
// projection.target_unsupported for a key that was made from a redacted text,
// projection.definition_unreadable, projection.changed, projection.fenced, and those of a program
// on an event that the version has applied.
func (s *Service) Recompute(ctx context.Context, p projection.Projection, o ports.RecomputeRequest) (rows int, change ports.TargetChange, err error) {
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
	for range recomputeTries {
		r := &recomputation{service: s, program: compiled, definition: d, order: o, work: ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: o.Partition}}
		rows, change, err = r.run(ctx)
		if fault.CodeOf(err) != projection.CodeChanged {
			break
		}
	}
	return rows, change, err
}

// recomputation is one attempt.
type recomputation struct {
	service    *Service
	program    *program
	definition projection.Definition
	order      ports.RecomputeRequest
	work       ports.ProjectionWork
	skipped    map[event.Sequence]bool // events that the version skipped
	eventsRead int
}

func (r *recomputation) run(ctx context.Context) (rows int, change ports.TargetChange, err error) {
	c := r.service.config.Recompute
	from, begun, err := c.Store.RowPosition(ctx, r.work)
	if err != nil || !begun {
		return 0, change, err
	}
	if err := r.loadSkipped(ctx); err != nil {
		return 0, change, err
	}
	keys, err := r.findKeys(ctx, from.Sequence)
	if err != nil || len(keys) == 0 {
		return 0, change, err
	}
	if r.order.Subject == "" && slices.ContainsFunc(slices.Collect(maps.Keys(keys)), isRedactedKey) {
		_, name, _ := projection.SplitName(r.work.Projection)
		return 0, change, projection.TargetUnsupported(name, r.order.Entity.Type)
	}
	f := &rowFolder{program: r.program, tenant: r.definition.TenantID, wanted: keys, rows: map[string]ports.ProjectionRow{}}
	at, now := event.Sequence(0), from
	for {
		if err := r.readEvents(ctx, f, at, now.Sequence); err != nil {
			if at > 0 && fault.CodeOf(err) != projection.CodeTargetTooLarge && !isTransient(ctx, err) {
				err = projection.Changed() // the version has skipped the event since
			}
			return 0, change, err
		}
		at = now.Sequence
		if now, begun, err = c.Store.RowPosition(ctx, r.work); err != nil {
			return 0, change, err
		}
		if !begun || now.Generation != from.Generation || now.Redactions != from.Redactions || now.Sequence < at {
			return 0, change, projection.Changed()
		}
		if now.Sequence-at <= recomputeTail {
			break
		}
	}
	var last *rowFolder
	change, err = c.Store.RecomputeRows(ctx, ports.RowRecompute{
		ProjectionWork: r.work, Keys: slices.Sorted(maps.Keys(keys)), Since: from, ReadThrough: at, Types: r.definition.Filter.Types, Limit: 2 * recomputeTail,
		Recovered: f.recovered, DryRun: r.order.DryRun, By: r.order.By,
	}, func() (ports.ProjectionHandler, func() map[string]ports.ProjectionRow) {
		last = f.clone()
		return tailHandler{r.service.config.Upcast(last)}, func() map[string]ports.ProjectionRow { return last.rows }
	})
	if err != nil {
		return 0, change, err
	}
	change.Events, change.PassedOver = last.events, last.failed
	return len(keys), change, nil
}

// isRedactedKey reports whether a key was made from a redacted text: the row under the earlier
// text cannot be found by its events any more.
func isRedactedKey(key string) bool {
	return strings.Contains(key, strings.Trim(shredding.Redacted, `"`))
}

// loadSkipped finds the events that the version skipped.
func (r *recomputation) loadSkipped(ctx context.Context) error {
	r.skipped = map[event.Sequence]bool{}
	q := ports.DeadLetterQuery{
		Kind: ports.LetterOfProjection, Name: r.work.Projection, Partitions: []event.PartitionID{r.work.Partition},
		Statuses: []string{ports.LetterPassed, ports.LetterSkipped}, Limit: 1000,
	}
	for {
		letters, err := r.service.config.Recompute.Letters.ListDeadLetters(ctx, q)
		if err != nil {
			return err
		}
		for _, d := range letters {
			if d.Version == r.work.Version {
				r.skipped[d.Sequence] = true
			}
		}
		if len(letters) < q.Limit {
			return nil
		}
		q.After = &letters[len(letters)-1]
	}
}

// findKeys returns the keys under which the events of the entity, or about the person, count.
func (r *recomputation) findKeys(ctx context.Context, through event.Sequence) (map[string]bool, error) {
	c := r.service.config.Recompute
	finder := &keyFinder{program: r.program, tenant: r.definition.TenantID, keys: map[string]bool{}}
	seen := map[event.Sequence]bool{} // an event of the entity's stream may also refer to the entity
	collect := func(events []event.Recorded) error {
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
		err := r.deliver(ctx, finder, fresh)
		if err == nil && len(finder.keys) > recomputeKeys {
			err = projection.TargetTooLarge(recomputeKeys)
		}
		return err
	}
	if r.order.Subject != "" {
		for after := event.Sequence(0); ; {
			events, err := c.Records.PersonalEvents(ctx, r.work.Partition, r.order.Subject, after, recomputePage)
			if err == nil {
				err = collect(events)
			}
			if err != nil || len(events) < recomputePage {
				return finder.keys, err
			}
			after = events[len(events)-1].Sequence
		}
	}
	stream := ports.StreamQuery{Partition: r.work.Partition, Stream: r.order.Entity, From: 1, Limit: recomputePage, Bytes: pageBytes}
	for {
		events, more, err := c.Log.ReadStream(ctx, stream)
		if err == nil {
			err = collect(events)
		}
		if err != nil {
			return nil, err
		}
		if len(events) < recomputePage && !more {
			break
		}
		stream.From = events[len(events)-1].StreamVersion + 1
	}
	err := eachPage(ctx, r.service.config.Recompute.Log, ports.EventQuery{Partition: r.work.Partition, Key: event.EntityKey(r.order.Entity.Type, r.order.Entity.ID), Until: through}, collect)
	return finder.keys, err
}

// eachPage calls do with all events that a query selects, page by page.
func eachPage(ctx context.Context, events ports.EventSearcher, q ports.EventQuery, do func([]event.Recorded) error) error {
	q.Limit, q.Bytes = recomputePage, pageBytes
	for {
		page, err := events.SearchEvents(ctx, q, 0)
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

// readEvents delivers the events after one sequence and up to another that the filter may select.
func (r *recomputation) readEvents(ctx context.Context, f *rowFolder, after, through event.Sequence) error {
	if after >= through {
		return nil
	}
	q := candidateQuery(r.definition, r.work.Partition)
	q.After, q.Until = after, through
	return eachPage(ctx, r.service.config.Recompute.Log, q, func(events []event.Recorded) error {
		most := r.service.config.Recompute.MaxRead
		if r.eventsRead += len(events); r.eventsRead > most {
			return projection.TargetTooLarge(most)
		}
		return r.deliver(ctx, f, events)
	})
}

// deliver applies events, upcast, to a consumer. It delivers skipped events one by one, and skips
// those again that still fail.
func (r *recomputation) deliver(ctx context.Context, to eventConsumer, events []event.Recorded) error {
	h := r.service.config.Upcast(to)
	b := ports.ProjectionBatch{Projection: r.work.Projection, Version: r.work.Version, Partition: r.work.Partition}
	for len(events) > 0 {
		n, alone := 0, r.skipped[events[0].Sequence]
		for n < len(events) && !r.skipped[events[n].Sequence] {
			n++
		}
		if alone {
			n = 1
		}
		b.Events = events[:n]
		err := h.Apply(ctx, nil, b)
		if alone {
			if err != nil && !isTransient(ctx, err) {
				err = nil
			} else if err == nil {
				to.markRecovered(events[0].Sequence)
			}
		}
		if err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// isTransient reports whether the cause of an error lies outside the event.
func isTransient(ctx context.Context, err error) bool {
	kind := fault.KindOf(err)
	return ctx.Err() != nil || kind == fault.Unavailable || kind == fault.Timeout
}

// eventConsumer is a handler of the recomputation.
type eventConsumer interface {
	ports.ProjectionHandler
	// markRecovered records that a skipped event was applied.
	markRecovered(s event.Sequence)
}

// keyFinder collects the keys of events.
type keyFinder struct {
	program *program
	tenant  string
	keys    map[string]bool
}

func (f *keyFinder) Apply(ctx context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	events, err := f.program.selectEvents(ctx, f.tenant, b.Events)
	for _, e := range events {
		f.keys[e.key] = true
	}
	return err
}

func (f *keyFinder) markRecovered(event.Sequence) {}

// rowFolder folds the rows of some keys, without a transaction.
type rowFolder struct {
	program   *program
	tenant    string
	wanted    map[string]bool
	rows      map[string]ports.ProjectionRow
	events    int  // that were applied
	failed    int  // events that could not be applied
	last      bool // the last event that it received counted under a wanted key
	recovered []event.Sequence
}

func (f *rowFolder) clone() *rowFolder {
	c := *f
	c.rows, c.recovered = maps.Clone(f.rows), slices.Clone(f.recovered)
	return &c
}

func (f *rowFolder) markRecovered(s event.Sequence) {
	if f.last {
		f.recovered = append(f.recovered, s)
	}
}

func (f *rowFolder) Apply(ctx context.Context, _ ports.ProjectionTx, b ports.ProjectionBatch) error {
	f.last = false
	events, err := f.program.selectEvents(ctx, f.tenant, b.Events)
	if err != nil {
		return err
	}
	for _, e := range events {
		if f.last = f.wanted[e.key]; !f.last {
			continue
		}
		if err := f.program.foldRow(ctx, e, f.rows); err != nil {
			f.failed++
			return err
		}
		f.events++
	}
	return nil
}

// tailHandler receives the events that were appended while the log was read. A failing one is
// an event that the version has just skipped, so that the recomputation starts again.
type tailHandler struct{ ports.ProjectionHandler }

func (t tailHandler) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	err := t.ProjectionHandler.Apply(ctx, tx, b)
	if err != nil && !isTransient(ctx, err) {
		return projection.Changed()
	}
	return err
}
