package archive

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/ports"
)

// leaseTTL is how long a lease lasts. It is renewed before each change of a file, which takes less, and the database removes
// nothing without it.
const leaseTTL = 10 * time.Minute

// renewEvery is the number of events whose states are folded between two renewals.
const renewEvery = 1000

// lease is the right to change files of the archive of a legal entity.
type lease struct {
	archiver  *Archiver
	holder    string // this use of the archive, so that two of one process do not share a lease
	resources []ports.LeaseResource
	term      uint64
}

// uses counts the leases that this process has asked for.
var uses atomic.Uint64

// take takes the lease on the archive of a legal entity. Its holder before has removed its last payloads then, or removes
// none. Fault archive.busy.
func (a *Archiver) take(ctx context.Context, le ports.LegalEntity) (*lease, error) {
	l := &lease{archiver: a, holder: fmt.Sprintf("%s-%d", a.Holder, uses.Add(1)), resources: ports.ArchiveLease(le.Partition)}
	held, err := a.Leases.Hold(ctx, l.holder, leaseTTL, l.resources)
	if err != nil {
		return nil, err
	}
	if len(held) == 0 {
		return nil, archive.Busy()
	}
	l.term = held[0].Term
	if err := a.Payloads.AwaitArchiving(ctx); err != nil {
		l.release(ctx)
		return nil, err
	}
	return l, nil
}

// renew makes the lease last again. Fault archive.busy if another one has it.
func (l *lease) renew(ctx context.Context) error {
	held, err := l.archiver.Leases.Hold(ctx, l.holder, leaseTTL, l.resources)
	if err == nil && (len(held) == 0 || held[0].Term != l.term) {
		err = archive.Busy()
	}
	return err
}

// release ends the lease, also after ctx has ended.
func (l *lease) release(ctx context.Context) {
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = l.archiver.Leases.Release(ending, l.holder, l.resources) // else it expires
}
