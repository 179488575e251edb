package disclosure

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Administration appends to the administrative log of a tenant: administration.Log.
type Administration interface {
	Record(ctx context.Context, tenantID string, actor event.Actor, expected concurrency.StreamExpectation, drafts ...event.Draft) error
}

// Streams reads the streams of a log: ports.EventReader with the status of ports.StreamReader.
type Streams interface {
	StreamStatus(ctx context.Context, p event.PartitionID, s event.StreamID) (ports.StreamStatus, error)
	EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error)
}

// RecorderConfig is what a Recorder needs; all of it is required.
type RecorderConfig struct {
	Accesses       ports.AccessLog
	Entities       ports.LegalEntities
	Streams        Streams
	Administration Administration
	Clock          ports.Clock
	Logger         *slog.Logger
	Limits         RecorderLimits
}

// RecorderLimits bound a Recorder; all are required.
type RecorderLimits struct {
	Retention time.Duration // of an access; at least disclosure.MinRetention
	Interval  time.Duration // between two looks
}

// Recorder binds the accesses of every hour to the administrative log of their tenant, by their
// number and digest, and deletes those that are older than the retention. Every node may run
// one: the version of the stream lets one of them through.
type Recorder struct{ RecorderConfig }

// NewRecorder makes a Recorder.
func NewRecorder(c RecorderConfig) (*Recorder, error) {
	return &Recorder{c}, fault.RequirePositive("disclosure.RecorderLimits", c.Limits)
}

// Run looks at once and then every Interval, until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	tick := time.NewTicker(r.Limits.Interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := r.RunOnce(ctx); err != nil && ctx.Err() == nil {
			r.Logger.WarnContext(ctx, "accesses could not be recorded in the administrative log; it will be tried again", "code", fault.CodeOf(err))
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// RunOnce records and deletes what is due in all tenants.
func (r *Recorder) RunOnce(ctx context.Context) error {
	logs, err := r.Entities.AdministrativeLogs(ctx, "")
	if err != nil {
		return err
	}
	// Once for all tenants, since it blocks what is being stored.
	settle := sync.OnceValues(func() (time.Time, error) { return r.Accesses.SettleAccesses(ctx) })
	var failed error
	for _, log := range logs {
		if err := r.record(ctx, log, settle); err != nil {
			failed = err // the other tenants go on
		}
	}
	return failed
}

var (
	recorderActor = event.Actor{Type: event.System, ID: "s-backbone-disclosure", Name: "access log"}
	beginning     = time.Unix(0, 0).UTC()
)

// deletePage is how many accesses one statement deletes.
const deletePage = 10_000

// record does what is due in one tenant. A crash after the event and before the deletion is
// made up for by the next run.
func (r *Recorder) record(ctx context.Context, log ports.LegalEntity, settle func() (time.Time, error)) error {
	oldest, err := r.Accesses.OldestAccess(ctx, log.Partition)
	if err != nil || oldest.IsZero() {
		return err
	}
	before, version, err := r.last(ctx, log)
	if err != nil {
		return err
	}
	if r.Clock.Now().Truncate(time.Hour).After(before.To) {
		if before, err = r.recordPeriod(ctx, log, before, version, settle); err != nil {
			return err
		}
	}
	return r.delete(ctx, log, before, oldest)
}

// last returns the newest recorded period and its version; the beginning if there is none.
func (r *Recorder) last(ctx context.Context, log ports.LegalEntity) (disclosure.Period, event.Version, error) {
	status, err := r.Streams.StreamStatus(ctx, log.Partition, disclosure.AccessStream)
	if err != nil || status.Version == 0 {
		return disclosure.Period{To: beginning}, 0, err
	}
	p, err := r.period(ctx, log, status.Version)
	return p, status.Version, err
}

func (r *Recorder) period(ctx context.Context, log ports.LegalEntity, v event.Version) (p disclosure.Period, err error) {
	found, err := r.Streams.EventsOfStream(ctx, log.Partition, disclosure.AccessStream, v, 1)
	if err != nil || len(found) == 0 {
		return p, err
	}
	return decodePeriod(&found[0])
}

func decodePeriod(e *event.Recorded) (p disclosure.Period, err error) {
	data, err := e.Data()
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	return p, err
}

// recordPeriod appends the event of the period that ended since the last one. Without accesses
// to record or to delete there is none.
func (r *Recorder) recordPeriod(ctx context.Context, log ports.LegalEntity, last disclosure.Period, version event.Version, settle func() (time.Time, error)) (disclosure.Period, error) {
	settled, err := settle()
	if err != nil {
		return last, err
	}
	next := disclosure.Period{From: last.To, To: settled.Truncate(time.Hour), DeletedThrough: last.DeletedThrough}
	if !next.To.After(next.From) {
		return last, nil // this node's clock is ahead of the store's
	}
	digest := disclosure.NewDigest()
	for a, err := range r.Accesses.Accesses(ctx, log.Partition, next.From, next.To) {
		if err != nil {
			return last, err
		}
		digest.Add(&a)
	}
	sum := digest.Sum()
	next.Accesses, next.SHA256 = digest.Count, hex.EncodeToString(sum[:])
	if next.DeletedThrough, err = r.expired(ctx, log, last, settled.Add(-r.Limits.Retention)); err != nil {
		return last, err
	}
	if next.Accesses == 0 && next.DeletedThrough == last.DeletedThrough {
		return last, nil
	}
	err = r.Administration.Record(ctx, log.TenantID, recorderActor,
		concurrency.StreamExpectation{Stream: disclosure.AccessStream, Expected: concurrency.Exactly(version)},
		event.Draft{Type: disclosure.AccessRecorded, SchemaVersion: 1, Stream: disclosure.AccessStream, Data: next, Source: event.Source{System: "backbone", Channel: "administration"}})
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		return last, nil // another node was first
	}
	if err != nil {
		return last, err
	}
	return next, nil
}

// expired returns the version of the newest period that ended before a time; the one that the
// last period names unless accesses ended since then.
func (r *Recorder) expired(ctx context.Context, log ports.LegalEntity, last disclosure.Period, before time.Time) (event.Version, error) {
	through, accesses := last.DeletedThrough, 0
	for at := through + 1; ; {
		found, err := r.Streams.EventsOfStream(ctx, log.Partition, disclosure.AccessStream, at, 100)
		if err != nil {
			return 0, err
		}
		for i := range found {
			p, err := decodePeriod(&found[i])
			if err != nil {
				return 0, err
			}
			if p.To.After(before) {
				return through, nil
			}
			if accesses += p.Accesses; accesses > 0 {
				through = found[i].StreamVersion
			}
			at = found[i].StreamVersion + 1
		}
		if len(found) == 0 {
			return through, nil
		}
	}
}

// delete deletes what the last period says is deleted.
func (r *Recorder) delete(ctx context.Context, log ports.LegalEntity, last disclosure.Period, oldest time.Time) error {
	if last.DeletedThrough == 0 {
		return nil
	}
	through, err := r.period(ctx, log, last.DeletedThrough)
	if err != nil {
		return err
	}
	for oldest.Before(through.To) {
		n, err := r.Accesses.DeleteAccesses(ctx, log.Partition, through.To, deletePage)
		if err != nil || n < deletePage {
			return err
		}
	}
	return nil
}
