package query

import (
	"context"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Progress tells how far a projection has read a partition.
type Progress interface {
	// Active is the version of the projection that is shown.
	Active(ctx context.Context, projection string) (version int, err error)
	// Position is the last sequence whose effects the read model of that version shows, and
	// the generation of its rows: another one has other rows, also at the same sequence.
	Position(ctx context.Context, projection string, version int, p event.PartitionID) (reached event.Sequence, generation uint64, err error)
}

// Reports serves the read models that modules declare.
type Reports struct {
	// Settle is how long after a moment an event may still be recorded with a time
	// at or before it: twice what a node's clock may be off. known_at waits for it.
	Settle time.Duration

	query    *Service
	models   map[string]module.ReadModel
	sources  map[string]ports.ReadModelSource
	progress Progress
	clock    ports.Clock
	patience time.Duration
}

// NewReports joins declarations and sources by path ("ap/open-items"). patience
// is how long a caller's min_sequence is waited for.
func NewReports(q *Service, models map[string]module.ReadModel, sources map[string]ports.ReadModelSource, progress Progress, clock ports.Clock, patience time.Duration) (*Reports, error) {
	for path := range models {
		if sources[path] == nil {
			return nil, fault.New(fault.Internal, "report.unbound", "read model %s has no source; bind one in the composition root", path)
		}
	}
	return &Reports{query: q, models: models, sources: sources, progress: progress, clock: clock, patience: patience}, nil
}

// Models lists the declared read models by path.
func (r *Reports) Models() map[string]module.ReadModel { return r.models }

// Question is a read model request as it came in.
type Question struct {
	Path        string
	Entity      ports.LegalEntity
	AsOf        string // ISO date; "" is today
	KnownAt     string
	MinSequence string
	Params      map[string]string // given parameters by name
	Cursor      string
	Limit       int
}

// Ask answers a read model. With known_at or min_sequence it waits, for up to
// patience, until the read model has got there, else fault read.not_caught_up
// (Timeout). With neither it waits for the head of the log as it stands now, and
// if that takes too long it shows what is there and says up to which sequence.
// Further faults: report.*, cursor.*.
func (r *Reports) Ask(ctx context.Context, q Question) (ports.Report, error) {
	model, ok := r.models[q.Path]
	if !ok {
		return ports.Report{}, fault.New(fault.NotFound, "report.not_found", "there is no read model %q; GET /api/openapi.yaml lists them", q.Path)
	}
	if err := checkParams(model, q.Params); err != nil {
		return ports.Report{}, err
	}
	var report ports.Report
	var at pin
	for try := 1; ; try++ {
		var stands bool
		var err error
		if report, at, stands, err = r.once(ctx, model, q); err != nil {
			return ports.Report{}, err
		}
		if stands {
			break
		}
		if q.Cursor != "" || try == reportTries {
			return ports.Report{}, gone()
		}
	}
	report.RowsName, report.Flat = model.RowsName, model.Flat
	if report.HasMore {
		report.NextCursor = r.query.cursors.SealText(q.Entity.TenantID, []byte(q.Path), at.with(report.NextCursor))
	}
	return report, nil
}

// reportTries is how often a report is begun that loses its ground.
const reportTries = 3

// gone says that what a report was begun on is not there any more.
func gone() error {
	return fault.New(fault.Unavailable, "read.rebuilding", "the read model was built anew in the middle of this report; start it again without a cursor").
		WithRetryAfter(time.Second)
}

// once asks the source. One report, with all its pages, is of one version, so that a
// switch in the middle does not mix two. What it was made of may have been dropped,
// reset or replaced in the middle, before a row went: then its checkpoint is not where it
// was, or of another generation, and the report does not stand.
func (r *Reports) once(ctx context.Context, model module.ReadModel, q Question) (report ports.Report, at pin, stands bool, err error) {
	at, rest, err := r.position(ctx, model, q)
	if err != nil {
		return report, at, false, err
	}
	report, err = r.sources[q.Path].Query(ctx, ports.ReadModelQuery{
		Partition: q.Entity.Partition, Entity: q.Entity, Version: at.version, AsOf: at.asOf, Known: at.known, KnownAt: at.knownAt, Params: q.Params,
		Cursor: rest, Limit: q.Limit,
	})
	if err != nil || at.known == 0 {
		return report, at, true, err
	}
	reached, generation, err := r.progress.Position(ctx, model.Projection, at.version, q.Entity.Partition)
	return report, at, reached >= at.known && generation == at.generation, err
}

// position says where on both axes the report stands: the first page resolves it,
// the cursor of a later page brings it along with the source's own cursor.
func (r *Reports) position(ctx context.Context, model module.ReadModel, q Question) (at pin, rest string, err error) {
	version, err := r.progress.Active(ctx, model.Projection)
	if err != nil {
		return pin{}, "", err
	}
	asOf := q.Entity.Today(r.clock.Now())
	if q.AsOf != "" {
		if asOf, err = event.ParseDate(q.AsOf); err != nil {
			return pin{}, "", fault.New(fault.Invalid, "report.as_of_invalid", "as_of is an ISO date such as 2026-03-31").WithField("as_of")
		}
	}
	if q.Cursor == "" {
		known, err := r.known(ctx, model, version, q)
		return pin{partition: q.Entity.Partition, known: known.sequence, knownAt: known.text, asOf: asOf, params: paramsKey(q.Params), version: version, generation: known.generation}, "", err
	}
	text, err := r.query.cursors.OpenText(q.Cursor, q.Entity.TenantID, []byte(q.Path))
	if err != nil {
		return pin{}, "", err
	}
	at, rest, ok := cutPin(text)
	if !ok || at.params != paramsKey(q.Params) || at.partition != q.Entity.Partition ||
		(q.AsOf != "" && asOf != at.asOf) || (q.KnownAt != "" && q.KnownAt != at.knownAt) {
		return pin{}, "", fault.New(fault.Invalid, "cursor.foreign", "this cursor belongs to another query; start that query again without a cursor").WithField("cursor")
	}
	if at.version != 0 && at.version != version {
		// It was begun on a version that is kept, or that has been dropped meanwhile.
		reached, generation, err := r.progress.Position(ctx, model.Projection, at.version, q.Entity.Partition)
		if err == nil && (reached < at.known || generation != at.generation) {
			err = gone()
		}
		return at, rest, err
	}
	// A read model that is being built anew would leave rows out.
	at.version = version
	_, generation, err := r.waitFor(ctx, model.Projection, version, q.Entity.Partition, at.known)
	if err == nil && generation != at.generation {
		err = gone()
	}
	return at, rest, err
}

type knownAt struct {
	sequence   event.Sequence
	text       string
	generation uint64 // of the rows
}

// known resolves the recorded axis and makes sure that the read model has got
// there: what it does not show yet cannot be reported as known.
func (r *Reports) known(ctx context.Context, model module.ReadModel, version int, q Question) (knownAt, error) {
	var k knownAt
	need := event.Sequence(0)
	if q.KnownAt != "" {
		if err := r.Settled(ctx, q.KnownAt); err != nil {
			return k, err
		}
		n, text, err := r.query.Known(ctx, q.Entity.Partition, q.KnownAt)
		if err != nil {
			return k, err
		}
		k, need = knownAt{sequence: n, text: text}, n
	}
	if q.MinSequence != "" {
		n, err := strconv.ParseUint(q.MinSequence, 10, 63)
		if err != nil {
			return k, fault.New(fault.Invalid, "report.min_sequence_invalid", "min_sequence is a sequence such as 42").WithField("min_sequence")
		}
		need = max(need, event.Sequence(n))
	}
	bestEffort := need == 0
	if k.text == "" {
		head, err := r.query.events.Head(ctx, q.Entity.Partition)
		if err != nil {
			return k, err
		}
		if bestEffort {
			need = head.Sequence
		}
	}
	reached, generation, err := r.waitFor(ctx, model.Projection, version, q.Entity.Partition, need)
	if err != nil && (!bestEffort || fault.CodeOf(err) != codeNotCaughtUp) {
		return k, err
	}
	if k.text == "" {
		k = knownAt{sequence: reached, text: seqText(reached)}
	}
	k.generation = generation
	return k, nil
}

const codeNotCaughtUp = "read.not_caught_up"

// Settled waits until nothing can be recorded any more at or before a time: what
// is still to come until then would change the answer. A time that is far ahead is
// refused.
func (r *Reports) Settled(ctx context.Context, knownAt string) error {
	return settled(ctx, r.clock.Now(), knownAt, r.Settle, r.patience)
}

func settled(ctx context.Context, now time.Time, knownAt string, settle, patience time.Duration) error {
	t, err := time.Parse(time.RFC3339Nano, knownAt)
	if err != nil {
		return nil // seq:<n>, or what Known refuses
	}
	ahead := t.Sub(now)
	if ahead > patience {
		return fault.New(fault.Invalid, "report.known_at_in_future", "known_at has not come yet; ask for a time that has passed, or for seq:<n>").WithField("known_at")
	}
	if ahead += settle; ahead <= 0 {
		return nil
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// waitFor polls the projection's checkpoint until it has reached need.
func (r *Reports) waitFor(ctx context.Context, projection string, version int, p event.PartitionID, need event.Sequence) (event.Sequence, uint64, error) {
	deadline := time.NewTimer(r.patience)
	defer deadline.Stop()
	pause := 5 * time.Millisecond
	for {
		reached, generation, err := r.progress.Position(ctx, projection, version, p)
		if err != nil || reached >= need {
			return reached, generation, err
		}
		next := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			next.Stop()
			return 0, 0, ctx.Err()
		case <-deadline.C:
			next.Stop()
			return reached, generation, fault.New(fault.Timeout, codeNotCaughtUp, "the read model has reached sequence %d; ask again in a moment", reached).
				WithNumbers(strconv.FormatUint(uint64(need), 10), strconv.FormatUint(uint64(reached), 10)).WithRetryAfter(time.Second)
		case <-next.C:
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}

func checkParams(model module.ReadModel, given map[string]string) error {
	declared := map[string]module.Param{}
	for _, p := range model.Params {
		declared[p.Name] = p
		if p.Required && given[p.Name] == "" {
			return fault.New(fault.Invalid, "report.parameter_missing", "parameter %q is required; add it", p.Name).WithField(p.Name)
		}
	}
	for name, value := range given {
		p, ok := declared[name]
		if !ok {
			return fault.New(fault.Invalid, "report.parameter_unknown", "this read model has no such parameter; GET /api/openapi.yaml lists them").WithField(name)
		}
		if err := checkParam(p, value); err != nil {
			return err
		}
	}
	return nil
}

func checkParam(p module.Param, value string) error {
	bad := func(want string) error {
		return fault.New(fault.Invalid, "report.parameter_invalid", "parameter %q is %s", p.Name, want).WithField(p.Name)
	}
	switch p.Type {
	case module.ParamDate:
		if _, err := event.ParseDate(value); err != nil {
			return bad("an ISO date such as 2026-03-31")
		}
	case module.ParamBool:
		if value != "true" && value != "false" {
			return bad("true or false")
		}
	case module.ParamInteger:
		if _, err := strconv.ParseInt(value, 10, 64); err != nil {
			return bad("a whole number")
		}
	}
	return nil
}
