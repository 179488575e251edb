package upcasting

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Log is the log that a proof reads.
type Log interface {
	ports.EventSearcher
	ports.HeadReader
}

// TokenSealer signs and encrypts the progress of a proof: signed, so that clients cannot forge
// it; encrypted, because it contains positions in logs of legal entities that the client may not
// see. query.CursorSealer
// implements it.
type TokenSealer interface {
	SealEncrypted(tenantID string, digest []byte, text string) string
	OpenEncrypted(cursor, tenantID string, digest []byte) (string, error)
}

// Prover implements module.Prover. On one node it proves one candidate at a time, because a proof
// reads all events of a type and would slow the store down for other requests.
type Prover struct {
	log      Log
	entities ports.LegalEntities
	sealer   TokenSealer
	slot     chan struct{} // held by the one proof that runs
}

var _ module.Prover = (*Prover)(nil)

// NewProver makes a Prover.
func NewProver(log Log, entities ports.LegalEntities, sealer TokenSealer) *Prover {
	return &Prover{log: log, entities: entities, sealer: sealer, slot: make(chan struct{}, 1)}
}

// proofPageEvents and proofPageBytes bound one read. The deadline is checked between reads only, so
// a call ends later than it by up to one page.
const (
	proofPageEvents = 200
	proofPageBytes  = 8 << 20
)

// progress is the content of a token, over all calls of a proof.
type progress struct {
	Events   int                                  `json:"n"`
	Failed   bool                                 `json:"f,omitempty"`
	ReadUpTo map[event.PartitionID]event.Sequence `json:"p"`
}

// Prove implements module.Prover. MaxDuration begins when other proofs of this node have ended.
func (p *Prover) Prove(ctx context.Context, c module.Candidate, r module.ProofRequest) (module.ProofReport, error) {
	reached := progress{ReadUpTo: map[event.PartitionID]event.Sequence{}}
	if r.Token != "" {
		text, err := p.sealer.OpenEncrypted(r.Token, c.TenantID, c.Digest[:])
		if err != nil {
			return module.ProofReport{}, err
		}
		if err := json.Unmarshal([]byte(text), &reached); err != nil || reached.ReadUpTo == nil {
			return module.ProofReport{}, fault.New(fault.Invalid, "cursor.malformed", "this is no proof; send the one that the check returned, unchanged").WithField("cursor")
		}
	}
	select {
	case p.slot <- struct{}{}:
		defer func() { <-p.slot }()
	case <-ctx.Done():
		return module.ProofReport{}, ctx.Err()
	}
	run := proofRun{prover: p, candidate: c, request: r, progress: reached, deadline: time.Now().Add(r.MaxDuration), report: module.ProofReport{Failures: []module.ProofFailure{}}}
	if err := run.checkExamples(ctx); err != nil {
		return module.ProofReport{}, err
	}
	if err := run.checkEvents(ctx); err != nil {
		return module.ProofReport{}, err
	}
	return run.finish()
}

// proofRun is one call of Prove.
type proofRun struct {
	prover    *Prover
	candidate module.Candidate
	request   module.ProofRequest
	progress  progress
	deadline  time.Time
	report    module.ProofReport
}

func (p *proofRun) checkExamples(ctx context.Context) error {
	for _, version := range slices.Sorted(maps.Keys(p.candidate.Examples)) {
		steps := p.candidate.Steps(version)
		for i, example := range p.candidate.Examples[version] {
			p.report.Examples++
			var found []fault.Violation
			if _, _, err := upcastData(ctx, example, steps, &found); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				found = append(found, violationOf(err))
			}
			if len(found) > 0 {
				p.addFailure(module.ProofFailure{Example: &i, SchemaVersion: version, Code: found[0].Code, Pointer: found[0].Field})
			}
		}
	}
	return nil
}

func (p *proofRun) addFailure(f module.ProofFailure) {
	p.report.Failures = append(p.report.Failures, f)
	p.progress.Failed = true
}

// hasMaxFailures reports whether the list of failures is full, so that reading further adds
// nothing. Further visible failures of the page that filled it are not counted.
func (p *proofRun) hasMaxFailures() bool { return len(p.report.Failures) >= module.MaxFailures }

func (p *proofRun) checkEvents(ctx context.Context) error {
	heads, err := p.prover.log.PartitionHeads(ctx)
	if err != nil {
		return err
	}
	entities, err := p.prover.entities.LegalEntities(ctx, p.candidate.TenantID)
	if err != nil {
		return err
	}
	p.report.Partitions = len(entities)
	deadlinePassed := false
	for _, le := range entities {
		partition := le.Partition
		done, err := p.checkPartition(ctx, partition, heads[partition].Sequence, &deadlinePassed)
		if err != nil {
			return err
		}
		if done {
			p.report.PartitionsDone++
		}
	}
	p.report.Complete = p.report.PartitionsDone == p.report.Partitions
	return nil
}

// checkPartition reads a partition's events up to its head and reports whether it reached it.
// A call reads at least one page, so that every call makes progress, unless the examples alone
// have filled the list of failures: then no call reads events.
func (p *proofRun) checkPartition(ctx context.Context, id event.PartitionID, head event.Sequence, deadlinePassed *bool) (bool, error) {
	for p.progress.ReadUpTo[id] < head {
		if *deadlinePassed || p.hasMaxFailures() {
			return false, nil
		}
		scan, err := p.prover.log.SearchEvents(ctx, ports.EventQuery{
			Partition: id, Types: []string{p.candidate.Type}, After: p.progress.ReadUpTo[id], Until: head, Limit: proofPageEvents, Bytes: proofPageBytes,
		}, 0)
		if err != nil {
			return false, err
		}
		page := scan.Events
		for i := range page {
			if err := p.checkEvent(ctx, page[i]); err != nil {
				return false, err
			}
		}
		switch {
		case scan.Stopped:
			p.progress.ReadUpTo[id] = scan.Reached
		case len(page) == proofPageEvents:
			p.progress.ReadUpTo[id] = page[len(page)-1].Sequence
		default:
			p.progress.ReadUpTo[id] = head
		}
		*deadlinePassed = time.Now().After(p.deadline)
	}
	return true, nil
}

func (p *proofRun) checkEvent(ctx context.Context, e event.Recorded) error {
	steps := p.candidate.Steps(e.SchemaVersion)
	if len(steps) == 0 {
		return nil
	}
	p.progress.Events++
	var found []fault.Violation
	if _, err := upcastEvent(ctx, e, steps, &found); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found = append(found, violationOf(err))
	}
	if len(found) == 0 {
		return nil
	}
	p.progress.Failed = true
	legalEntity, visible := p.request.Visible[e.Partition]
	switch {
	case !visible:
		p.report.HiddenFailures++
	case !p.hasMaxFailures():
		p.addFailure(module.ProofFailure{
			EventID: e.ID.String(), LegalEntity: legalEntity, Sequence: strconv.FormatUint(uint64(e.Sequence), 10), SchemaVersion: e.SchemaVersion,
			Code: found[0].Code, Pointer: found[0].Field,
		})
	}
	return nil
}

func (p *proofRun) finish() (module.ProofReport, error) {
	p.report.Events, p.report.Failed = p.progress.Events, p.progress.Failed
	text, err := json.Marshal(p.progress)
	if err != nil {
		return module.ProofReport{}, err
	}
	token := p.prover.sealer.SealEncrypted(p.candidate.TenantID, p.candidate.Digest[:], string(text))
	switch {
	case !p.report.Complete:
		p.report.Cursor = token
	case !p.report.Failed:
		p.report.Proof = token
	}
	return p.report, nil
}
