package keyrotation

import (
	"context"
	"log/slog"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// The sizes of a rotation.
const (
	PageSize   = 500 // rows wrapped again in one transaction
	SampleSize = 100 // keys that are unwrapped to prove that a KEK works

	codeKeyNotFound = "kms.key_not_found"
)

// Notary signs a text as a note, to be checked with the installation's public key.
type Notary interface {
	SignNote(ctx context.Context, text []byte) (note []byte, err error)
}

// Observer counts rotations, for metrics. It must not block.
type Observer interface {
	// Rotated reports an attempt at a tenant's rotation; code is "" when it succeeded.
	Rotated(rewrapped int64, took time.Duration, code string)
}

// Config is what a Service needs.
type Config struct {
	Keys     ports.KeyRotation
	Recovery ports.KeyRecovery
	KMS      ports.KeyLifecycle // as the rotator
	DataKeys ports.DataKeys     // as the application, so that checks unwrap keys with its rights
	Exports  ports.ExportStore
	Receipts ports.ErasureReceipts // the erasures so far
	Notary   Notary
	Clock    ports.Clock
	// Gate returns the error with which rotations are refused, such as pii.receipts_behind
	// until an operator has repaired a restored database. nil never refuses.
	Gate func(ctx context.Context) error

	AliasPrefix string // of all KEKs of the installation, "alias/backbone/NAME"; no slash at the end
	Limits
	Node     string // name of this process in the claims of the nightly job
	Logger   *slog.Logger
	Observer Observer // may be nil
}

// Limits bound a Service; all are required.
type Limits struct {
	DeletionDays int // from the end of an epoch to the destruction of its KEK, 7 to 30
	Workers      int // calls of the key service at the same time
}

// Service rotates KEKs. Goroutines and processes may run it at the same time: a step that two
// of them take takes effect once.
type Service struct{ c Config }

// New makes a Service.
func New(c Config) (*Service, error) {
	if err := fault.RequirePositive("keyrotation.Config", c.Limits); err != nil {
		return nil, err
	}
	if c.Gate == nil {
		c.Gate = func(context.Context) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{c: c}, nil
}

// Step is the progress of a rotation.
type Step struct {
	TenantID string
	Number   int // 1 to 6
	Title    string
	Done     int64
	Total    int64 // 0: the step has no count
}

// Progress is called when a rotation proceeds. It must not block.
type Progress func(Step)

func (p Progress) report(tenantID string, number int, title string, done, total int64) {
	if p != nil {
		p(Step{TenantID: tenantID, Number: number, Title: title, Done: done, Total: total})
	}
}

// Outcome is the result of a rotation.
type Outcome struct {
	TenantID   string    `json:"tenant_id"`
	Ended      uint32    `json:"ended_epoch"`
	Active     uint32    `json:"active_epoch"`
	Resumed    bool      `json:"resumed,omitempty"` // an earlier run began it
	Rewrapped  int64     `json:"rewrapped"`
	Export     uint64    `json:"export"`             // number of the export that proved that keys restore
	Covers     uint64    `json:"covers_receipts_to"` // number of a receipt; no backup can undo erasures up to it once the ended KEK is destroyed
	DeletionAt time.Time `json:"deletion_at"`        // when the key service destroys the ended KEK
}

// Rotate finishes the rotation that an earlier run began, or runs a new one. A rotation covers
// the erasures whose receipts existed just before it activated its KEK (Outcome.Covers). If
// Rotate finished an earlier rotation and the tenant has a newer receipt, it rotates once more:
// the KEK that is active now may have wrapped that person's keys in a backup, so it has to end
// too.
//
//	keys.kek_missing   FailedPrecondition: the tenant has no KEK
//	pii.receipts_behind, or another fault of Config.Gate
//	keys.*, kms.*      of the key store and the key service; the next run continues at the failed step
func (s *Service) Rotate(ctx context.Context, tenantID string, progress Progress) (out Outcome, err error) {
	began := s.c.Clock.Now()
	var rewrapped int64
	defer func() {
		if s.c.Observer != nil {
			s.c.Observer.Rotated(rewrapped, s.c.Clock.Now().Sub(began), fault.CodeOf(err))
		}
	}()
	if err := s.c.Gate(ctx); err != nil {
		return Outcome{TenantID: tenantID}, err
	}
	for {
		out, err = s.rotateOnce(ctx, tenantID, progress)
		rewrapped += out.Rewrapped
		if err != nil || !out.Resumed {
			return out, err
		}
		newest, err := s.newestReceipts(ctx)
		if err != nil || newest[tenantID] <= out.Covers {
			return out, err
		}
	}
}

func (s *Service) rotateOnce(ctx context.Context, tenantID string, progress Progress) (Outcome, error) {
	out := Outcome{TenantID: tenantID}
	if err := s.deleteKEKs(ctx, tenantID); err != nil { // an earlier run may have stopped in its last step
		return out, err
	}
	e, err := s.epochs(ctx, tenantID)
	if err != nil {
		return out, err
	}
	if e.active == nil && e.draining == nil {
		return out, fault.New(fault.FailedPrecondition, "keys.kek_missing", "the tenant has no key that wraps keys yet; check the tenant's id, or wait until a server has made the first key, as it does for every tenant with a legal entity")
	}
	out.Resumed = e.pending != nil || e.draining != nil
	if e.draining == nil {
		if e, err = s.openEpoch(ctx, tenantID, e, progress); err != nil {
			return out, err
		}
	}
	if e.active == nil || e.draining == nil {
		return out, fault.New(fault.Conflict, "keys.epochs_changed", "the tenant's epochs were changed by another process; run the rotation again")
	}
	out.Ended, out.Active = e.draining.Epoch, e.active.Epoch
	if out.Rewrapped, err = s.rewrap(ctx, *e.draining, *e.active, progress); err != nil {
		return out, err
	}
	if err := s.check(ctx, *e.draining, *e.active, progress); err != nil {
		return out, err
	}
	if out.Export, err = s.proveExport(ctx, *e.active, progress); err != nil {
		return out, err
	}
	progress.report(tenantID, 6, "Ending the old key", 0, 0)
	if err := s.c.Keys.CloseKEK(ctx, tenantID, out.Ended, ports.KEKDeleting); err != nil {
		return out, err
	}
	if out.DeletionAt, err = s.deleteKEK(ctx, *e.draining, out.Active); err != nil {
		return out, err
	}
	out.Covers, err = s.readCoverage(ctx, tenantID, out.Active)
	return out, err
}

// epochs are a tenant's KEKs by state.
type epochs struct {
	pending, active, draining *ports.KEK
	newest                    uint32
}

func (s *Service) epochs(ctx context.Context, tenantID string) (epochs, error) {
	keks, err := s.c.Keys.KEKs(ctx, tenantID)
	if err != nil {
		return epochs{}, err
	}
	var e epochs
	for _, k := range keks {
		e.newest = max(e.newest, k.Epoch)
		switch k.State {
		case ports.KEKPending:
			e.pending = &k
		case ports.KEKActive:
			e.active = &k
		case ports.KEKDraining:
			e.draining = &k
		case ports.KEKDeleting, ports.KEKDeleted:
		}
	}
	return e, nil
}

// EnsureKEK makes the first KEK of a tenant unless it has one. Several nodes may call it
// at the same time; they make one.
func (s *Service) EnsureKEK(ctx context.Context, tenantID string) error {
	e, err := s.epochs(ctx, tenantID)
	if err != nil || e.active != nil || e.draining != nil {
		return err
	}
	_, err = s.openEpoch(ctx, tenantID, e, nil)
	return err
}

// newestReceipts returns the number of the newest receipt by tenant.
func (s *Service) newestReceipts(ctx context.Context) (map[string]uint64, error) {
	newest := map[string]uint64{}
	return newest, ports.EachReceipt(ctx, s.c.Receipts, 1, func(r ports.ErasureReceipt) error {
		newest[r.TenantID] = max(newest[r.TenantID], r.Number)
		return nil
	})
}
