package verify

import (
	"context"
	"fmt"
	"iter"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Store is what verification reads.
type Store interface {
	ports.ChainReader
	ports.ChainAudit
	ports.LegalEntities
	ports.Installations
	Head(ctx context.Context, p event.PartitionID) (ports.Head, error)
}

// Progress is told how many events of how many are checked.
type Progress func(legalEntity string, done, total uint64)

// Option is a further demand on a run.
type Option func(*run)

// Against compares with heads that were exported earlier. The chain of each of their
// legal entities, as far as it is chosen, and the registry's must pass through that
// sequence with that checksum.
func Against(heads Heads) Option {
	return func(r *run) { r.reference = newReference(heads) }
}

// run is what holds for all legal entities of a run.
type run struct {
	logName   string
	reference *reference // nil: none
	progress  Progress   // nil: nobody asks
}

// Run verifies the named legal entities of a tenant, all of them when none is
// named. An error means that the run could not finish; what was found until then
// is in the reports.
func Run(ctx context.Context, store Store, tenantID string, codes []string, progress Progress, options ...Option) ([]EntityReport, error) {
	installation, err := store.Installation(ctx)
	if err != nil {
		return nil, err
	}
	r := run{logName: installation.LogName, progress: progress}
	for _, o := range options {
		o(&r)
	}
	entities, err := store.LegalEntities(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	selected, err := choose(entities, codes, r.reference.knows)
	if err != nil {
		return nil, err
	}
	// Those first that ought to be there and are not.
	reports := r.reference.vanished(entities, tenantID, codes)
	for _, le := range selected {
		report, err := r.verify(ctx, store, le)
		reports = append(reports, report)
		if err != nil {
			return reports, fmt.Errorf("legal entity %s: %w", le.Code, err)
		}
	}
	return reports, nil
}

// choose picks by code. A legal entity that only an exported head knows is found
// missing, not unknown.
func choose(all []ports.LegalEntity, codes []string, known func(code string) bool) ([]ports.LegalEntity, error) {
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
		if !found && !known(code) {
			return nil, fmt.Errorf("there is no legal entity %q in this log; name one that exists", code)
		}
	}
	return out, nil
}

// verify walks one partition of a store.
func (r *run) verify(ctx context.Context, store Store, le ports.LegalEntity) (EntityReport, error) {
	report := newReport(le)
	head, headErr := store.Head(ctx, le.Partition)
	if headErr != nil && fault.KindOf(headErr) != fault.Internal {
		return report, headErr
	}
	known, err := store.Redactions(ctx, le.Partition)
	if err != nil {
		return report, err
	}
	if headErr != nil {
		head.Genesis = event.GenesisChecksum(r.logName, le.Partition) // it came with what cannot be read
	}
	c := newChain(r, &report, le, head.Genesis)
	c.head = head
	c.redactions.know(known)
	if err := r.walkAll(ctx, store, c); err != nil {
		c.abort()
		return report, err
	}
	if headErr != nil {
		c.add(EventUnreadable, report.Head, "the last event holds a value that cannot be read")
	}
	if report.Head < head.Sequence {
		c.add(SequenceGap, report.Head+1, fmt.Sprintf("the log ends at %d, but its head was %d", report.Head, head.Sequence))
	}
	c.finish()
	return report, nil
}

// walkAll checks all events and what is kept beside them.
func (r *run) walkAll(ctx context.Context, store Store, c *chain) error {
	// Whichever side fails first ends the other one: a walk may take hours.
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var rows streamRows
	compared := make(chan struct{})
	go func() {
		defer close(compared)
		var err error
		if rows, err = readStreamRows(within, store, c.entity.Partition, c.head.Sequence); err != nil {
			cancel(err)
		}
	}()
	if err := r.walkEvents(within, store, c); err != nil {
		cancel(err)
	}
	<-compared
	if err := context.Cause(within); err != nil {
		return err
	}
	for _, f := range rows.findings {
		c.report.add(f)
	}
	c.report.Suppressed += rows.suppressed
	if rows.begun != c.begun || len(rows.findings) > 0 {
		if err := c.findUnkept(ctx, store); err != nil {
			return err
		}
		if c.report.Sound() && c.report.Head >= c.head.Sequence { // whatever it is, it must not pass
			c.add(StreamMismatch, 0, fmt.Sprintf("%d events begin a stream, but something is kept of %d", c.begun, rows.begun))
		}
	}
	count, err := store.CountEvents(ctx, c.entity.Partition, c.report.Head)
	if err != nil {
		return err
	}
	if count != c.report.Events {
		c.add(HiddenEvents, 0, fmt.Sprintf("there are %d events up to the last one, but reading them in order gave %d", count, c.report.Events))
	}
	return nil
}

// walkEvents checks the events and the rows about persons.
func (r *run) walkEvents(ctx context.Context, store Store, c *chain) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	side := newSideRows(ctx, store, c.entity.Partition, c.head.Sequence)
	defer side.stop()
	if err := r.walk(ctx, store, c, side); err != nil {
		return err
	}
	// Whoever redacts while this runs writes the record first and the event after: when
	// something needs an explanation, the records and the rest of the log are read again.
	if c.redactions.unexplained() {
		late, err := store.Redactions(ctx, c.entity.Partition)
		if err != nil {
			return err
		}
		c.redactions.learn(late)
		if err := r.walk(ctx, store, c, side); err != nil {
			return err
		}
	}
	return side.rest(c)
}

// walk checks what is after the last event that was checked.
func (r *run) walk(ctx context.Context, store Store, c *chain, side *sideRows) error {
	for p := range readAhead(ctx, store, c.entity.Partition, c.report.Head) {
		for _, n := range p.unreadable {
			c.unreadable(n)
		}
		for i := range p.events {
			rows, err := side.of(c, p.events[i].Sequence)
			if err != nil {
				return err
			}
			c.check(&p.events[i], rows, p.events[i].Sequence <= c.head.Sequence)
		}
		if err := c.checkStreams(ctx, store, p.events); err != nil {
			return err
		}
		if p.err != nil {
			return p.err
		}
		if r.progress != nil && len(p.events) > 0 {
			r.progress(c.entity.Code, c.report.Events, max(uint64(c.head.Sequence), c.report.Events))
		}
	}
	return ctx.Err()
}

// sideRows follows the rows about persons beside the events.
type sideRows struct {
	next func() (ports.PersonalRow, error, bool)
	stop func()
	row  ports.PersonalRow // the next one, if there is one
	have bool
	err  error
}

func newSideRows(ctx context.Context, store ports.ChainAudit, p event.PartitionID, until event.Sequence) *sideRows {
	s := &sideRows{}
	s.next, s.stop = iter.Pull2(store.PersonalRows(ctx, p, until))
	s.advance()
	return s
}

func (s *sideRows) advance() {
	s.row, s.err, s.have = s.next()
	s.have = s.have && s.err == nil
}

// of gives the rows of one event; rows before it belong to no event.
func (s *sideRows) of(c *chain, n event.Sequence) (rows []ports.PersonalRow, err error) {
	for s.have && int64(s.row.Sequence) <= int64(n) {
		if s.row.Sequence == n {
			rows = append(rows, s.row)
		} else {
			c.add(PersonalRowExtra, s.row.Sequence, "a row names a person for an event that is not there")
		}
		s.advance()
	}
	return rows, s.err
}

// exact gives the rows of one event for an export, which has no place for others.
func (s *sideRows) exact(n event.Sequence) (rows []ports.PersonalRow, err error) {
	for ; s.have && int64(s.row.Sequence) <= int64(n); s.advance() {
		if s.row.Sequence == n {
			rows = append(rows, s.row)
		}
	}
	return rows, s.err
}

// rest finds the rows after the last event.
func (s *sideRows) rest(c *chain) error {
	for s.have {
		c.add(PersonalRowExtra, s.row.Sequence, "a row names a person for an event that is not there")
		s.advance()
	}
	return s.err
}
