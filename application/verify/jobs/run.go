package jobs

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// job is a run on this node.
type job struct {
	service  *Service
	tenantID string
	id       event.ID
	codes    []string
	whole    bool
	openKeys bool
	heads    *verify.Heads      // nil: none
	log      ports.LegalEntity  // the administrative log
	ctx      context.Context    // ends when the run must stop
	stop     context.CancelFunc // of ctx
	ending   atomic.Bool        // it records its end and gives its lease back, and checks nothing more
	gone     chan struct{}      // closed when another run can start

	mu       sync.Mutex
	version  event.Version // of the run's stream
	findings int
	checking string
	done     uint64 // events of the log that is being checked
}

func (j *job) holder() string { return j.service.Node + "/" + j.id.String() }

// isHolder reports whether a lease is held by a run.
func isHolder(holder string, id event.ID) bool { return strings.HasSuffix(holder, "/"+id.String()) }

func (j *job) resource() []ports.LeaseResource {
	return []ports.LeaseResource{{Name: leaseName, Partition: j.log.Partition}}
}

// hold takes or renews the lease of the tenant.
func (j *job) hold(ctx context.Context) (held bool, err error) {
	leases, err := j.service.Leases.Hold(ctx, j.holder(), leaseTTL, j.resource())
	return len(leases) > 0, err
}

func (j *job) release(ctx context.Context) {
	if j.log.Partition == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if err := j.service.Leases.Release(ctx, j.holder(), j.resource()); err != nil {
		j.service.Logger.WarnContext(ctx, "the lease of a verification was not released and ends by itself", "code", fault.CodeOf(err))
	}
}

// run checks everything and records the end.
func (j *job) run() {
	defer j.release(j.ctx)
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		j.renew()
	}()
	ended := j.check()
	j.stop()
	<-renewing
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), closing)
	defer cancel()
	j.ending.Store(true) // before a caller sees the end
	switch err := j.record(ctx, Ended, ended); fault.CodeOf(err) {
	case concurrency.CodeWrongExpectedVersion: // cancelled, or another run found this one interrupted
	default:
		if err != nil {
			j.service.Logger.WarnContext(ctx, "the end of a verification was not recorded; it will count as interrupted", "verification", j.id.String(), "code", fault.CodeOf(err))
		}
	}
}

// renew renews the lease until the run stops, and stops the run when it lost the lease or was
// ended elsewhere. A failure to renew is tried again; the lease ends by itself.
func (j *job) renew() {
	last := time.Now()
	for ports.Sleep(j.ctx, renewal) == nil {
		held, err := j.hold(j.ctx)
		switch {
		case err == nil && held:
			last = time.Now()
		case err == nil || time.Since(last) > leaseTTL:
			j.stop()
			return
		}
		j.mu.Lock()
		version := j.version
		j.mu.Unlock()
		status, err := j.service.Events.StreamStatus(j.ctx, j.log.Partition, streamOf(j.id))
		if err == nil && status.Version > version && j.isEnded() {
			j.stop()
			return
		}
	}
}

// isEnded reports whether the log says that the run has ended.
func (j *job) isEnded() bool {
	r, _, err := j.service.read(j.ctx, j.log, j.id)
	return err == nil && !r.EndedAt.IsZero()
}

// check checks the logs and then the event types. The answer is how the run ended.
func (j *job) check() EndedData {
	var options []verify.Option
	if j.heads != nil {
		options = append(options, verify.Against(*j.heads))
	}
	if j.openKeys {
		options = append(options, verify.OpenKeys(j.service.DataKeys))
	}
	ended := EndedData{Outcome: string(Sound), EventTypes: []RegistryData{}}
	err := j.checkLogs(options)
	if err == nil && j.whole {
		ended.EventTypes, err = j.checkEventTypes(options)
	}
	if err == nil && j.whole {
		ended.Erasures, err = j.compareErased()
	}
	ended.Findings = j.findings
	switch {
	case j.ctx.Err() != nil:
		ended.Outcome = string(Interrupted)
	case err != nil: // what was found until then stays found
		ended.Outcome, ended.Code = string(Failed), fault.CodeOf(err)
		j.service.Logger.ErrorContext(j.ctx, "a verification failed", "tenant", j.tenantID, "verification", j.id.String(), "code", ended.Code)
	case j.findings > 0:
		ended.Outcome = string(Tampered)
		j.service.Logger.ErrorContext(j.ctx, "a verification found damage", "tenant", j.tenantID, "verification", j.id.String(), "findings", j.findings)
	}
	return ended
}

func (j *job) checkLogs(options []verify.Option) error {
	codes := j.codes
	if j.heads != nil && j.whole { // a legal entity that has a head and does not exist any more
		for _, h := range j.heads.Partitions {
			if !slices.Contains(codes, h.LegalEntity) {
				codes = append(slices.Clip(codes), h.LegalEntity)
			}
		}
	}
	return j.service.Check(j.ctx, j.tenantID, codes, func(code string, done, _ uint64) { j.report(code, done) }, j.recordLog, options...)
}

func (j *job) recordLog(r *verify.EntityReport) error {
	if err := j.ctx.Err(); err != nil {
		return err
	}
	if err := j.record(j.ctx, Checked, CheckedData{
		LegalEntity: r.LegalEntity, Partition: r.Partition, Events: r.Events, Head: min(r.Head, maxNumber), Checksum: r.Checksum, ReferenceSequence: r.Reference,
		Redactions: len(r.Redactions), Erasures: len(r.Erasures), UnboundIntents: r.UnboundIntents, UnboundNumbers: r.UnboundNumbers, UnboundRequests: r.UnboundRequests,
		Policy: r.Policy, Findings: findings(r.Findings), Suppressed: r.Suppressed,
	}); err != nil {
		return err
	}
	j.found(&r.FindingList)
	j.report("", 0)
	return nil
}

func (j *job) checkEventTypes(options []verify.Option) ([]RegistryData, error) {
	reports, err := j.service.Registries(j.ctx, j.tenantID, options...)
	out := []RegistryData{}
	for i := range reports {
		r := &reports[i]
		j.found(&r.FindingList)
		out = append(out, RegistryData{
			Tenant: r.Tenant, Changes: r.Changes, Head: r.Head, Checksum: r.Checksum, Findings: findings(r.Findings), Suppressed: r.Suppressed,
		})
	}
	return out, err
}

// compareErased compares the receipts of the tenant's erasures, nil if the node has none.
func (j *job) compareErased() (*ErasuresData, error) {
	finding, compared, err := j.service.CompareErased(j.ctx, j.tenantID)
	if err != nil || !compared {
		return nil, err
	}
	if finding != "" {
		j.found(&verify.FindingList{Suppressed: 1})
	}
	return &ErasuresData{Finding: finding}, nil
}

func (j *job) found(l *verify.FindingList) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.findings += len(l.Findings) + l.Suppressed
}

// maxDetail bounds the text of a finding in bytes. It may repeat what a forged row holds.
const maxDetail = 500

// maxNumber is the largest number that JSON readers keep exactly. A forged row may hold more.
const maxNumber = 1<<53 - 1

func findings(list []verify.Finding) []Finding {
	out := make([]Finding, len(list))
	for i, f := range list {
		detail := strings.ReplaceAll(f.Detail, "\x00", "")
		out[i] = Finding{
			Kind: string(f.Kind), Sequence: min(f.Sequence, maxNumber), EventID: f.EventID, Detail: strings.ToValidUTF8(detail[:min(len(detail), maxDetail)], ""),
		}
	}
	return out
}

// record appends the next event of the run.
func (j *job) record(ctx context.Context, eventType string, data any) error {
	j.mu.Lock()
	version := j.version
	j.mu.Unlock()
	err := j.service.Log.Record(ctx, j.tenantID, node, concurrency.StreamExpectation{Stream: streamOf(j.id), Expected: concurrency.Exactly(version)},
		draft(eventType, j.id, data))
	if err == nil {
		j.mu.Lock()
		j.version++
		j.mu.Unlock()
	}
	return err
}

// report notes how far the check of a log is.
func (j *job) report(code string, done uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.checking, j.done = code, done
}

// progress adds to a run what only this node knows.
func (j *job) progress(r *Run) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.Current, r.Done = j.checking, r.Done+j.done
}
