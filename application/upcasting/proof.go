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

// Log is what a proof reads.
type Log interface {
	ports.EventSearcher
	PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error)
}

// Tokens signs how far a proof has come, so that nobody makes one up, and hides it, since
// it tells how far the logs of other tenants have grown: query.Cursors.
type Tokens interface {
	SealEncrypted(tenantID string, digest []byte, text string) string
	OpenEncrypted(cursor, tenantID string, digest []byte) (string, error)
}

// Prover implements module.Prover. It looks at one candidate at a time: a proof reads
// all events of a type, and must not take the store from those who work.
type Prover struct {
	log    Log
	tokens Tokens
	turn   chan struct{}
}

var _ module.Prover = (*Prover)(nil)

// NewProver makes a Prover.
func NewProver(log Log, tokens Tokens) *Prover {
	return &Prover{log: log, tokens: tokens, turn: make(chan struct{}, 1)}
}

// So many events are read between two looks at the clock, and of so many bytes together.
const (
	proofPage  = 200
	proofBytes = 8 << 20
)

// progress is what a token says.
type progress struct {
	Events int                                  `json:"n"`
	Failed bool                                 `json:"f,omitempty"`
	Upto   map[event.PartitionID]event.Sequence `json:"p"`
}

// Prove implements module.Prover.
func (p *Prover) Prove(ctx context.Context, c module.Candidate, r module.ProofRequest) (module.ProofReport, error) {
	at := progress{Upto: map[event.PartitionID]event.Sequence{}}
	if r.Token != "" {
		text, err := p.tokens.OpenEncrypted(r.Token, "", c.Digest[:])
		if err != nil {
			return module.ProofReport{}, err
		}
		if err := json.Unmarshal([]byte(text), &at); err != nil || at.Upto == nil {
			return module.ProofReport{}, fault.New(fault.Invalid, "cursor.malformed", "this is no proof; use what the check gave, unchanged").WithField("cursor")
		}
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return module.ProofReport{}, ctx.Err()
	}
	run := proof{prover: p, candidate: c, request: r, at: at, deadline: time.Now().Add(r.MaxDuration), report: module.ProofReport{Failures: []module.ProofFailure{}}}
	if err := run.examples(ctx); err != nil {
		return module.ProofReport{}, err
	}
	if err := run.events(ctx); err != nil {
		return module.ProofReport{}, err
	}
	return run.finish()
}

// proof is one call.
type proof struct {
	prover    *Prover
	candidate module.Candidate
	request   module.ProofRequest
	at        progress
	deadline  time.Time
	report    module.ProofReport
}

func (p *proof) examples(ctx context.Context) error {
	for _, version := range slices.Sorted(maps.Keys(p.candidate.Examples)) {
		steps := p.candidate.Steps(version)
		for i, example := range p.candidate.Examples[version] {
			p.report.Examples++
			var found []fault.Violation
			if _, _, err := run(ctx, example, steps, &found); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				found = append(found, violationOf(err))
			}
			if len(found) > 0 {
				p.fail(module.ProofFailure{Example: &i, SchemaVersion: version, Code: found[0].Code, Pointer: found[0].Field})
			}
		}
	}
	return nil
}

func (p *proof) fail(f module.ProofFailure) {
	p.report.Failures = append(p.report.Failures, f)
	p.at.Failed = true
}

// enough says that looking further would tell nothing new.
func (p *proof) enough() bool { return len(p.report.Failures) >= module.MostFailures }

func (p *proof) events(ctx context.Context) error {
	heads, err := p.prover.log.PartitionHeads(ctx)
	if err != nil {
		return err
	}
	p.report.Partitions = len(heads)
	late := false
	for _, partition := range slices.Sorted(maps.Keys(heads)) {
		done, err := p.partition(ctx, partition, heads[partition].Sequence, &late)
		if err != nil {
			return err
		}
		if done {
			p.report.Done++
		}
	}
	p.report.Complete = p.report.Done == p.report.Partitions
	return nil
}

// partition looks at the events of one up to its head. It reports whether it got there.
// A call looks at one page at least, so that it always gets further.
func (p *proof) partition(ctx context.Context, id event.PartitionID, head event.Sequence, late *bool) (bool, error) {
	for p.at.Upto[id] < head {
		if *late || p.enough() {
			return false, nil
		}
		scan, err := p.prover.log.SearchEvents(ctx, ports.EventQuery{
			Partition: id, Types: []string{p.candidate.Type}, After: p.at.Upto[id], Until: head, Limit: proofPage, Bytes: proofBytes,
		}, 0)
		if err != nil {
			return false, err
		}
		page := scan.Events
		for i := range page {
			if err := p.event(ctx, page[i]); err != nil {
				return false, err
			}
		}
		switch {
		case scan.Stopped:
			p.at.Upto[id] = scan.Reached
		case len(page) == proofPage:
			p.at.Upto[id] = page[len(page)-1].Sequence
		default:
			p.at.Upto[id] = head
		}
		*late = time.Now().After(p.deadline)
	}
	return true, nil
}

func (p *proof) event(ctx context.Context, e event.Recorded) error {
	steps := p.candidate.Steps(e.SchemaVersion)
	if len(steps) == 0 {
		return nil
	}
	p.at.Events++
	var found []fault.Violation
	if _, err := lift(ctx, e, steps, &found); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found = append(found, violationOf(err))
	}
	if len(found) == 0 {
		return nil
	}
	p.at.Failed = true
	code, visible := p.request.Visible[e.Partition]
	switch {
	case !visible:
		p.report.Elsewhere++
	case !p.enough():
		p.fail(module.ProofFailure{
			EventID: e.ID.String(), LegalEntity: code, Sequence: strconv.FormatUint(uint64(e.Sequence), 10), SchemaVersion: e.SchemaVersion,
			Code: found[0].Code, Pointer: found[0].Field,
		})
	}
	return nil
}

func (p *proof) finish() (module.ProofReport, error) {
	p.report.Events, p.report.Failed = p.at.Events, p.at.Failed
	text, err := json.Marshal(p.at)
	if err != nil {
		return module.ProofReport{}, err
	}
	token := p.prover.tokens.SealEncrypted("", p.candidate.Digest[:], string(text))
	switch {
	case !p.report.Complete:
		p.report.Cursor = token
	case !p.report.Failed:
		p.report.Proof = token
	}
	return p.report, nil
}
