package query

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Progress reports how far projections have read.
type Progress interface {
	// Active returns the projection's version that reports read.
	Active(ctx context.Context, projection string) (version int, err error)
	// Position returns the last sequence that a version's rows include, and the generation of
	// the rows. A rebuild starts a new generation; rows of two generations may differ at the
	// same sequence.
	Position(ctx context.Context, projection string, version int, p event.PartitionID) (reached event.Sequence, generation uint64, err error)
}

// Reports queries the read models that modules declare.
type Reports struct {
	query    *Service
	models   map[string]module.ReadModel
	sources  map[string]ports.ReadModelSource
	progress Progress
	maxWait  time.Duration
}

// NewReports joins declarations and sources by path ("ap/open-items"). maxWait is how long
// a query waits for the read model to reach its sequence. Fault: report.unbound.
func NewReports(q *Service, models map[string]module.ReadModel, sources map[string]ports.ReadModelSource, progress Progress, maxWait time.Duration) (*Reports, error) {
	for path := range models {
		if sources[path] == nil {
			return nil, fault.New(fault.Internal, module.CodeReportUnbound, "read model %s has no source; bind one in the composition root", path)
		}
	}
	return &Reports{query: q, models: models, sources: sources, progress: progress, maxWait: maxWait}, nil
}

// ReportQuery is a request to a read model, with its parameters not yet checked.
type ReportQuery struct {
	Path        string
	Entity      ports.LegalEntity
	AsOf        string            // ISO date; "" is today in the legal entity's time zone
	KnownAt     string            // see Service.ResolveKnownAt
	MinSequence string            // the read model must include this sequence; "" for none
	Params      map[string]string // given parameters by name
	Cursor      string
	Limit       int
}

// Query queries a read model, as known at the end of an append's batch: a position inside a
// batch is moved to its end. With known_at or min_sequence it waits up to maxWait until
// the read model has reached that sequence, else fault read.not_caught_up (Timeout). With
// neither it waits for the current head of the log; if that takes longer than maxWait, it
// returns the rows as they are with the sequence that they include. Further faults:
// report.*, cursor.*, read.rebuilding.
func (r *Reports) Query(ctx context.Context, q ReportQuery) (ports.Report, error) {
	model, ok := r.models[q.Path]
	if !ok {
		return ports.Report{}, fault.New(fault.NotFound, "report.not_found", "there is no read model %q; GET /api/openapi.yaml lists them", q.Path)
	}
	if err := checkParams(model, q.Params); err != nil {
		return ports.Report{}, err
	}
	var report ports.Report
	var at reportPin
	for try := 1; ; try++ {
		var isConsistent bool
		var err error
		if report, at, isConsistent, err = r.queryOnce(ctx, model, q); err != nil {
			return ports.Report{}, err
		}
		if isConsistent {
			break
		}
		if q.Cursor != "" || try == maxReportTries {
			return ports.Report{}, rebuildingFault()
		}
	}
	report.RowsName, report.Flat = model.RowsName, model.Flat
	report.Header = completeHeader(report.Header, q, at)
	if report.HasMore {
		report.NextCursor = r.query.cursors.SealText(q.Entity.TenantID, []byte(q.Path), at.encode(report.NextCursor))
	}
	return report, nil
}

// maxReportTries bounds how often the first page is read again because the rows were
// replaced during the read.
const maxReportTries = 3

// rebuildingFault reports that the rows that a report has read were replaced.
func rebuildingFault() error {
	return fault.New(fault.Unavailable, "read.rebuilding", "the read model was rebuilt while this report was read; start it again without a cursor").
		WithRetryAfter(time.Second)
}

// planPage is how many rows of a page a planner reads at once.
const planPage = 10_000

// ReadForPlan reads all rows of a read model for a planner, as of the newest committed event,
// and returns that event's sequence. It waits like Query with known_at. Faults: those of Query
// for a named known_at; report.too_many_rows (FailedPrecondition) beyond module.MaxReportRows.
func (r *Reports) ReadForPlan(ctx context.Context, le ports.LegalEntity, read module.ReportRead) (rows []any, known event.Sequence, err error) {
	head, err := r.query.events.Head(ctx, le.Partition)
	if err != nil {
		return nil, 0, err
	}
	q := ReportQuery{Path: read.Path, Entity: le, KnownAt: formatSequence(head.Sequence), Params: read.Params, Limit: planPage}
	if read.AsOf != 0 {
		q.AsOf = read.AsOf.String()
	}
	for {
		page, err := r.Query(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		if rows = append(rows, page.Rows...); len(rows) > module.MaxReportRows {
			return nil, 0, fault.New(fault.FailedPrecondition, "report.too_many_rows",
				"this step reads more than %d rows of read model %s; divide it, for example by period or selection", module.MaxReportRows, read.Path)
		}
		if !page.HasMore {
			return rows, head.Sequence, nil
		}
		q.Cursor = page.NextCursor
	}
}

// queryOnce queries the source. All pages of a report read one version of the projection,
// so a switch between pages does not mix two. isConsistent is false if the rows were
// dropped, reset or replaced during the query: the checkpoint is then lower than before, or
// of another generation.
func (r *Reports) queryOnce(ctx context.Context, model module.ReadModel, q ReportQuery) (report ports.Report, at reportPin, isConsistent bool, err error) {
	at, err = r.resolvePin(ctx, model, q)
	if err != nil {
		return report, at, false, err
	}
	read := ports.ReadModelQuery{
		Partition: q.Entity.Partition, Entity: q.Entity, Version: at.Version, Versions: at.versions(), AsOf: at.AsOf, Known: at.Known, KnownAt: at.KnownAt, Params: q.Params,
		Cursor: at.Rest, Limit: q.Limit,
	}
	if report, err = r.sources[q.Path].Query(ctx, read); err == nil && !report.HasMore {
		err = r.addParts(ctx, model, read, &report)
	}
	if err != nil || at.Known == 0 {
		return report, at, true, err
	}
	for _, of := range append([]pinnedRows{{model.Projection, at.Version, at.Generation}}, at.Reads...) {
		reached, generation, err := r.progress.Position(ctx, of.Projection, of.Version, q.Entity.Partition)
		if err != nil || reached < at.Known || generation != of.Generation {
			return report, at, false, err
		}
	}
	return report, at, true, nil
}

// addParts adds the rows of a read model's parts to its last page.
func (r *Reports) addParts(ctx context.Context, model module.ReadModel, read ports.ReadModelQuery, report *ports.Report) error {
	versions := maps.Clone(read.Versions)
	if versions == nil {
		versions = map[string]int{}
	}
	versions[model.Projection] = read.Version
	for _, path := range model.Parts {
		of := read
		of.Version, of.Versions, of.Cursor, of.Limit = versions[r.models[path].Projection], versions, "", module.MaxPartRows
		part, err := r.sources[path].Query(ctx, of)
		if err != nil {
			return err
		}
		if part.HasMore {
			return fmt.Errorf("read model %s has more than %d rows, which is too many for a part of another one", path, module.MaxPartRows)
		}
		report.Rows = append(report.Rows, part.Rows...)
	}
	return nil
}

// activeReads returns the active versions of the further projections of a read model.
func (r *Reports) activeReads(ctx context.Context, model module.ReadModel) ([]pinnedRows, error) {
	var out []pinnedRows
	for _, name := range model.Reads {
		version, err := r.progress.Active(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, pinnedRows{Projection: name, Version: version})
	}
	return out, nil
}

// resolvePin returns the report's position on both time axes, with the source's own cursor.
// The first page resolves the position; later pages take it from their cursor.
func (r *Reports) resolvePin(ctx context.Context, model module.ReadModel, q ReportQuery) (at reportPin, err error) {
	version, err := r.progress.Active(ctx, model.Projection)
	if err != nil {
		return reportPin{}, err
	}
	asOf := q.Entity.Today(r.query.clock.Now())
	if q.AsOf != "" {
		if asOf, err = event.ParseDate(q.AsOf); err != nil {
			return reportPin{}, fault.New(fault.Invalid, "report.as_of_invalid", "as_of is an ISO date such as 2026-03-31").WithField("as_of")
		}
	}
	if q.Cursor == "" {
		known, err := r.resolveKnownAt(ctx, model, version, q)
		return reportPin{
			Partition: q.Entity.Partition, Known: known.sequence, KnownAt: known.text, SnappedFrom: known.snappedFrom, AsOf: asOf,
			Params: encodeParams(q.Params), Version: version, Generation: known.generation, Reads: known.reads,
		}, err
	}
	text, err := r.query.cursors.OpenText(q.Cursor, q.Entity.TenantID, []byte(q.Path))
	if err != nil {
		return reportPin{}, err
	}
	if json.Unmarshal([]byte(text), &at) != nil || at.Params != encodeParams(q.Params) || at.Partition != q.Entity.Partition ||
		(q.AsOf != "" && asOf != at.AsOf) || (q.KnownAt != "" && q.KnownAt != at.KnownAt) {
		return reportPin{}, fault.New(fault.Invalid, "cursor.foreign", "this cursor belongs to another query; start that query again without a cursor").WithField("cursor")
	}
	for _, of := range at.Reads {
		reached, generation, err := r.progress.Position(ctx, of.Projection, of.Version, q.Entity.Partition)
		if err == nil && (reached < at.Known || generation != of.Generation) {
			err = rebuildingFault()
		}
		if err != nil {
			return at, err
		}
	}
	if at.Version != 0 && at.Version != version {
		// The report was started on an earlier version, which may have been dropped since.
		reached, generation, err := r.progress.Position(ctx, model.Projection, at.Version, q.Entity.Partition)
		if err == nil && (reached < at.Known || generation != at.Generation) {
			err = rebuildingFault()
		}
		return at, err
	}
	// A read model that is being rebuilt lacks rows until it has reached the position.
	at.Version = version
	_, generation, err := r.waitUntilReached(ctx, model.Projection, version, q.Entity.Partition, at.Known)
	if err == nil && generation != at.Generation {
		err = rebuildingFault()
	}
	return at, err
}

type resolvedKnownAt struct {
	sequence    event.Sequence
	text        string
	snappedFrom event.Sequence // the sequence asked for, if it lies inside a batch; else 0
	generation  uint64         // of the rows
	reads       []pinnedRows
}

// resolveKnownAt resolves known_at and min_sequence to the ends of their batches and waits
// until the read model includes them. With neither it takes the last batch that the read
// model has read to its end.
func (r *Reports) resolveKnownAt(ctx context.Context, model module.ReadModel, version int, q ReportQuery) (resolvedKnownAt, error) {
	var k resolvedKnownAt
	need := event.Sequence(0)
	if q.KnownAt != "" {
		if err := r.WaitUntilSettled(ctx, q.KnownAt); err != nil {
			return k, err
		}
		n, text, err := r.query.ResolveKnownAt(ctx, q.Entity.Partition, q.KnownAt)
		if err != nil {
			return k, err
		}
		k = resolvedKnownAt{text: text}
		if k.sequence, err = r.query.batchEnd(ctx, q.Entity.Partition, n); err != nil {
			return k, err
		}
		if k.sequence != n {
			k.snappedFrom = n
		}
		need = k.sequence
	}
	if q.MinSequence != "" {
		n, err := strconv.ParseUint(q.MinSequence, 10, 63)
		if err != nil {
			return k, fault.New(fault.Invalid, "report.min_sequence_invalid", "min_sequence is a sequence such as 42").WithField("min_sequence")
		}
		end := event.Sequence(n)
		if head, err := r.query.events.Head(ctx, q.Entity.Partition); err != nil {
			return k, err
		} else if end <= head.Sequence {
			if end, err = r.query.batchEnd(ctx, q.Entity.Partition, end); err != nil {
				return k, err
			}
		}
		need = max(need, end)
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
	reads, err := r.activeReads(ctx, model)
	if err != nil {
		return k, err
	}
	reached, generation, err := r.waitUntilReached(ctx, model.Projection, version, q.Entity.Partition, need)
	if err != nil && (!bestEffort || fault.CodeOf(err) != module.CodeNotCaughtUp) {
		return k, err
	}
	for i := range reads {
		var other event.Sequence
		other, reads[i].Generation, err = r.waitUntilReached(ctx, reads[i].Projection, reads[i].Version, q.Entity.Partition, need)
		if err != nil && (!bestEffort || fault.CodeOf(err) != module.CodeNotCaughtUp) {
			return k, err
		}
		reached = min(reached, other)
	}
	if k.text == "" {
		floor := need
		if reached < need {
			floor = 0
		}
		whole, err := r.query.wholeBatches(ctx, q.Entity.Partition, reached, floor)
		if err != nil {
			return k, err
		}
		k = resolvedKnownAt{sequence: whole, text: formatSequence(whole)}
	}
	k.generation, k.reads = generation, reads
	return k, nil
}

// WaitUntilSettled waits until no event can be recorded at or before known_at any more; such
// an event would change the answer. Fault report.known_at_in_future if that takes longer
// than maxWait.
func (r *Reports) WaitUntilSettled(ctx context.Context, knownAt string) error {
	return waitUntilSettled(ctx, r.query.clock.Now(), knownAt, r.query.settleDelay, r.maxWait)
}

func waitUntilSettled(ctx context.Context, now time.Time, knownAt string, delay, maxWait time.Duration) error {
	t, err := time.Parse(time.RFC3339Nano, knownAt)
	if err != nil {
		return nil //nolint:nilerr // seq:<n>, or a text that ResolveKnownAt refuses
	}
	ahead := t.Sub(now)
	if ahead > maxWait {
		return fault.New(fault.Invalid, "report.known_at_in_future", "known_at has not come yet; ask for a time that has passed, or for seq:<n>").WithField("known_at")
	}
	if ahead += delay; ahead <= 0 {
		return nil
	}
	return ports.Sleep(ctx, ahead)
}

// waitUntilReached polls the projection's checkpoint until it has reached need.
func (r *Reports) waitUntilReached(ctx context.Context, projection string, version int, p event.PartitionID, need event.Sequence) (event.Sequence, uint64, error) {
	deadline := time.Now().Add(r.maxWait)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		reached, generation, err := r.progress.Position(ctx, projection, version, p)
		if err != nil || reached >= need {
			return reached, generation, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return reached, generation, fault.New(fault.Timeout, module.CodeNotCaughtUp, "the read model has reached sequence %d; ask again in a moment", reached).
				WithNumbers(strconv.FormatUint(uint64(need), 10), strconv.FormatUint(uint64(reached), 10)).WithRetryAfter(time.Second)
		}
		if err := ports.Sleep(ctx, min(pause, left)); err != nil {
			return 0, 0, err
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

// WaitUntilReached waits up to maxWait until a version of a projection has reached a
// sequence, and returns the sequence it is at. Fault read.not_caught_up (Timeout).
func (r *Reports) WaitUntilReached(ctx context.Context, projection string, version int, p event.PartitionID, need event.Sequence) (event.Sequence, error) {
	reached, _, err := r.waitUntilReached(ctx, projection, version, p, need)
	return reached, err
}

// reportPin is the position that all pages of one report share.
type reportPin struct {
	Partition   event.PartitionID `json:"p"`
	Known       event.Sequence    `json:"k"`
	KnownAt     string            `json:"t"`
	SnappedFrom event.Sequence    `json:"s,omitempty"`
	AsOf        event.Date        `json:"a"`
	Params      string            `json:"q"`
	Rest        string            `json:"r"`           // the source's own cursor
	Version     int               `json:"v,omitempty"` // of the projection; 0: the cursor was made before projections had versions
	Generation  uint64            `json:"g,omitempty"` // of the rows of that version
	Reads       []pinnedRows      `json:"o,omitempty"` // of further projections
}

// pinnedRows are the rows of a further projection.
type pinnedRows struct {
	Projection string `json:"n"`
	Version    int    `json:"v"`
	Generation uint64 `json:"g"`
}

// versions are those of the further projections, by name; nil if there are none.
func (p reportPin) versions() map[string]int {
	var out map[string]int
	for _, of := range p.Reads {
		if out == nil {
			out = map[string]int{}
		}
		out[of.Projection] = of.Version
	}
	return out
}

// completeHeader adds what every report's header has and a source need not write: the
// sequence that known_at was resolved to, the one that was asked for if it lies inside a
// batch, and the given parameters.
func completeHeader(written ports.ReportFields, q ReportQuery, at reportPin) ports.ReportFields {
	common := ports.ReportFields{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "as_of", Value: at.AsOf.String()}, {Name: "known_at", Value: at.KnownAt},
		{Name: "sequence", Value: strconv.FormatUint(uint64(at.Known), 10)},
	}
	if at.SnappedFrom != 0 {
		common = append(common, ports.ReportField{Name: "snapped_from", Value: strconv.FormatUint(uint64(at.SnappedFrom), 10)})
	}
	for _, name := range slices.Sorted(maps.Keys(q.Params)) {
		common = append(common, ports.ReportField{Name: name, Value: q.Params[name]})
	}
	header := slices.Clone(written)
	place := 0 // behind the common field before
	for _, f := range common {
		i := slices.IndexFunc(header, func(have ports.ReportField) bool { return have.Name == f.Name })
		if i < 0 {
			i = place
			header = slices.Insert(header, i, f)
		}
		place = max(place, i+1)
	}
	return header
}

// encode joins the pin and the source's own cursor.
func (p reportPin) encode(rest string) string {
	p.Rest = rest
	b, err := json.Marshal(p)
	if err != nil {
		return ""
	}
	return string(b)
}

func encodeParams(params map[string]string) string {
	out := make([]string, 0, len(params))
	for k, v := range params {
		out = append(out, strconv.Quote(k)+"="+strconv.Quote(v))
	}
	sort.Strings(out)
	return strings.Join(out, ",")
}
