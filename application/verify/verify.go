// Package verify proves a log sound or says where it was tampered with: every
// payload is hashed again, every checksum computed again from the genesis on.
package verify

import (
	"context"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Store is what verification reads.
type Store interface {
	ports.ChainReader
	ports.LegalEntities
	ports.Installations
	Head(ctx context.Context, p event.PartitionID) (ports.Head, error)
}

// FindingKind says what does not fit.
type FindingKind string

// The findings.
const (
	GenesisMismatch  FindingKind = "genesis_mismatch"  // the partition's first link is not what log name and partition id give
	SequenceGap      FindingKind = "sequence_gap"      // an event is missing or was put in
	PayloadMismatch  FindingKind = "payload_mismatch"  // the payload is not what the skeleton vouches for
	PayloadMissing   FindingKind = "payload_missing"   // there is no payload
	ChecksumMismatch FindingKind = "checksum_mismatch" // the skeleton, or one before it, was changed
	TimeBackwards    FindingKind = "time_backwards"    // recorded_at goes back
	ForeignScope     FindingKind = "foreign_scope"     // the event names another legal entity than its partition's
)

// Finding is one place that does not fit.
type Finding struct {
	Kind     FindingKind    `json:"kind"`
	Sequence event.Sequence `json:"sequence"`
	EventID  string         `json:"event_id,omitempty"`
	Detail   string         `json:"detail"`
}

// EntityReport is the verdict on one legal entity.
type EntityReport struct {
	Tenant      string            `json:"tenant_id"`
	LegalEntity string            `json:"legal_entity"`
	Partition   event.PartitionID `json:"partition_id"`
	Events      uint64            `json:"events"`
	Head        event.Sequence    `json:"head_sequence"`
	Checksum    string            `json:"head_checksum"`
	Findings    []Finding         `json:"findings"`
	Suppressed  int               `json:"suppressed_findings"` // beyond MaxFindings
}

// Sound reports whether nothing was found.
func (r EntityReport) Sound() bool { return len(r.Findings) == 0 }

// MaxFindings bounds the findings listed per legal entity; the rest is counted.
const MaxFindings = 20

const pageSize = 1000

// Progress is told how many events of how many are checked.
type Progress func(legalEntity string, done, total uint64)

// Run verifies the named legal entities of a tenant, all of them when none is
// named. An error means that the run could not finish; what was found until then
// is in the reports.
func Run(ctx context.Context, store Store, tenantID string, codes []string, progress Progress) ([]EntityReport, error) {
	installation, err := store.Installation(ctx)
	if err != nil {
		return nil, err
	}
	entities, err := store.LegalEntities(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	selected, err := choose(entities, codes)
	if err != nil {
		return nil, err
	}
	var reports []EntityReport
	for _, le := range selected {
		report, err := verifyEntity(ctx, store, installation.LogName, le, progress)
		reports = append(reports, report)
		if err != nil {
			return reports, fmt.Errorf("legal entity %s: %w", le.Code, err)
		}
	}
	return reports, nil
}

func choose(all []ports.LegalEntity, codes []string) ([]ports.LegalEntity, error) {
	if len(codes) == 0 {
		return all, nil
	}
	var out []ports.LegalEntity
	for _, code := range codes {
		found := false
		for _, le := range all {
			if le.Code == code {
				out, found = append(out, le), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no legal entity %q in this log; name one that exists", code)
		}
	}
	return out, nil
}

type page struct {
	events []event.Recorded
	err    error
}

func verifyEntity(ctx context.Context, store Store, logName string, le ports.LegalEntity, progress Progress) (EntityReport, error) {
	r := EntityReport{Tenant: le.TenantID, LegalEntity: le.Code, Partition: le.Partition, Findings: []Finding{}}
	head, err := store.Head(ctx, le.Partition)
	if err != nil {
		return r, err
	}
	genesis := event.GenesisChecksum(logName, le.Partition)
	if head.Genesis != genesis {
		r.add(Finding{Kind: GenesisMismatch, Detail: "the stored genesis checksum is not that of this log name and partition"})
	}
	c := chain{report: &r, entity: le, head: head, previous: genesis}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for p := range readAhead(ctx, store, le.Partition) {
		if p.err != nil {
			return r, p.err
		}
		for i := range p.events {
			c.check(&p.events[i])
		}
		if progress != nil {
			progress(le.Code, r.Events, max(uint64(head.Sequence), r.Events))
		}
	}
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if r.Head < head.Sequence {
		r.add(Finding{Kind: SequenceGap, Sequence: r.Head + 1, Detail: fmt.Sprintf("the log ends at %d, but its head was %d", r.Head, head.Sequence)})
	}
	return r, nil
}

// readAhead reads the next page while the last one is hashed.
func readAhead(ctx context.Context, store ports.ChainReader, p event.PartitionID) <-chan page {
	out := make(chan page, 1)
	go func() {
		defer close(out)
		after := event.Sequence(0)
		for {
			events, err := store.ChainPage(ctx, p, after, pageSize)
			if err == nil && len(events) == 0 {
				return
			}
			select {
			case out <- page{events, err}:
			case <-ctx.Done():
				return
			}
			if err != nil || len(events) < pageSize {
				return
			}
			after = events[len(events)-1].Sequence
		}
	}()
	return out
}

func (r *EntityReport) add(f Finding) {
	if len(r.Findings) == MaxFindings {
		r.Suppressed++
		return
	}
	r.Findings = append(r.Findings, f)
}

// chain walks one partition.
type chain struct {
	report   *EntityReport
	entity   ports.LegalEntity
	head     ports.Head // as it was when the run began
	previous event.Hash
	last     event.Recorded
	buffer   []byte
}

func (c *chain) check(e *event.Recorded) {
	r := c.report
	found := func(kind FindingKind, format string, args ...any) {
		r.add(Finding{Kind: kind, Sequence: e.Sequence, EventID: e.ID.String(), Detail: fmt.Sprintf(format, args...)})
	}
	if e.Sequence != r.Head+1 {
		found(SequenceGap, "sequence %d follows %d", e.Sequence, r.Head)
	}
	if e.Scope.TenantID != c.entity.TenantID || e.Scope.LegalEntity != c.entity.Code {
		found(ForeignScope, "the event's scope is not that of its partition")
	}
	if e.RecordedAt.Before(c.last.RecordedAt) {
		found(TimeBackwards, "recorded before the event before it")
	}
	switch {
	case e.Payload == nil:
		found(PayloadMissing, "the event has no payload")
	case event.HashPayload(e.Salt, e.Payload) != e.PayloadHash:
		found(PayloadMismatch, "the payload's hash is not the one in the skeleton")
	}
	var sum event.Hash
	sum, c.buffer = e.ChainChecksum(c.previous, c.buffer)
	if sum != e.Checksum {
		found(ChecksumMismatch, "the checksum is not that of this skeleton after the checksum before it")
	}
	if e.Sequence == c.head.Sequence && e.Checksum != c.head.Checksum {
		found(ChecksumMismatch, "the checksum is not the one that the head of the log had when the run began")
	}
	// Going on from the stored checksum shows further places instead of one long tail.
	c.previous = e.Checksum
	r.Events++
	r.Head, r.Checksum = e.Sequence, fmt.Sprintf("%x", e.Checksum[:])
	c.last = *e
}
