package wire

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/query"
	streams "github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// positions resolves moments, those that are just over too.
type positions struct {
	query   *query.Service
	reports *query.Reports
}

// ResolveKnownAt implements entity.Positions.
func (p positions) ResolveKnownAt(ctx context.Context, partition event.PartitionID, knownAt string) (event.Sequence, string, error) {
	if knownAt != "" {
		if err := p.reports.WaitUntilSettled(ctx, knownAt); err != nil {
			return 0, "", err
		}
	}
	return p.query.ResolveKnownAt(ctx, partition, knownAt)
}

// announcer appends what an erasure announces, as the system.
type announcer struct{ appends *eventappend.Service }

// eraserActor is who appends the announcements; the persons stand in the request.
const eraserActor = "s-backbone-erasure"

// Announce implements erasure.Announcer. The stream of a request has one event per
// log, which keeps it to one when the idempotency key has expired meanwhile.
func (a announcer) Announce(ctx context.Context, e erasure.Announcement) error {
	_, _, err := a.appends.Append(ctx, eventappend.Request{
		LegalEntity: e.LegalEntity, Actor: event.Actor{Type: event.System, ID: eraserActor, Name: "erasure"}, PersonID: eraserActor,
		Drafts: []event.Draft{e.Draft}, Streams: []concurrency.StreamExpectation{{Stream: e.Draft.Stream, Expected: concurrency.NoStream()}},
		IdempotencyKey: e.IdempotencyKey, Fingerprint: e.Fingerprint,
	})
	if fault.CodeOf(err) == concurrency.CodeWrongExpectedVersion {
		return nil
	}
	return err
}

// streamWriter appends the events that change streams.
type streamWriter struct{ appends *eventappend.Service }

// EventWrite implements stream.Writer.
func (w streamWriter) Write(ctx context.Context, r streams.EventWrite) (ports.AppendedEvent, bool, error) {
	receipts, replayed, err := w.appends.Append(ctx, eventappend.Request{
		LegalEntity: r.LegalEntity, Actor: r.Actor, PersonID: r.PersonID, Roles: r.Roles, Drafts: []event.Draft{r.Draft}, Streams: r.Expected,
		IdempotencyKey: r.IdempotencyKey, Fingerprint: r.Fingerprint,
	})
	if err != nil {
		return ports.AppendedEvent{}, false, err
	}
	return receipts[0], replayed, nil
}

// chains verifies logs.
type chains struct{ store *postgres.Store }

// VerifyChain implements erasure.Chains.
func (c chains) VerifyChain(ctx context.Context, le ports.LegalEntity) (erasure.ChainVerdict, error) {
	reports, err := verify.Run(ctx, c.store, le.TenantID, []string{le.Code}, nil)
	if err != nil {
		return erasure.ChainVerdict{}, err
	}
	var v erasure.ChainVerdict
	for _, r := range reports {
		v = erasure.ChainVerdict{LegalEntity: r.LegalEntity, Events: r.Events, Head: r.Head, Checksum: r.Checksum, Findings: v.Findings + len(r.Findings) + r.Suppressed}
	}
	return v, nil
}

// The embedded interfaces have a method of their own name.
type (
	subjectKeys   = ports.SubjectKeys
	legalEntities = ports.LegalEntities
)

// firstKEKs makes the first KEK of a tenant when it is wanted.
type firstKEKs struct {
	subjectKeys
	ensure func(ctx context.Context, tenantID string) error
}

// ActiveKEK implements ports.SubjectKeys.
func (f firstKEKs) ActiveKEK(ctx context.Context, tenantID string) (ports.KEK, error) {
	kek, err := f.subjectKeys.ActiveKEK(ctx, tenantID)
	if fault.CodeOf(err) != "keys.kek_missing" {
		return kek, err
	}
	if err := f.ensure(ctx, tenantID); err != nil {
		return ports.KEK{}, err
	}
	return f.subjectKeys.ActiveKEK(ctx, tenantID)
}

// newTenants tells of legal entities that were made.
type newTenants struct {
	legalEntities
	made func()
}

// CreateLegalEntity implements ports.LegalEntities.
func (n newTenants) CreateLegalEntity(ctx context.Context, le ports.LegalEntity) (ports.LegalEntity, error) {
	le, err := n.legalEntities.CreateLegalEntity(ctx, le)
	if err == nil {
		n.made()
	}
	return le, err
}

// watchedEvictions measures how far behind a node is.
type watchedEvictions struct {
	ports.KeyEvictions
	metrics *prometheus.Metrics // may be nil
}

// ReportNode implements ports.KeyEvictions.
func (w watchedEvictions) ReportNode(ctx context.Context, node string, forgotten int64) (int64, error) {
	newest, err := w.KeyEvictions.ReportNode(ctx, node, forgotten)
	if err == nil && w.metrics != nil {
		w.metrics.GenerationLag(newest - forgotten)
	}
	return newest, err
}
