package archive

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// onlineYears is how many years stay in the database wholly, besides the running one. The database refuses younger
// payloads by itself.
const onlineYears = 2

// Log is what Archiver reads of the log.
type Log interface {
	ports.ChainReader
	// Head and SequenceAt are those of ports.EventReader.
	Head(ctx context.Context, p event.PartitionID) (ports.Head, error)
	SequenceAt(ctx context.Context, p event.PartitionID, t time.Time) (event.Sequence, error)
	ports.StreamReader
	// PersonalRows is that of ports.ChainAudit.
	PersonalRows(ctx context.Context, p event.PartitionID, until event.Sequence) iter.Seq2[ports.PersonalRow, error]
	ports.RedactionReader
}

// States folds the states without which archived events would be needed.
type States interface {
	// EntityState folds the state of an entity as of a sequence. found is false if there is none that can be stored.
	EntityState(ctx context.Context, le ports.LegalEntity, entityType, entityID string, through event.Sequence) (state archive.State, found bool, err error)
	// StreamState folds that of a stream, which is needed only if plans read such states.
	StreamState(ctx context.Context, le ports.LegalEntity, stream event.StreamID, through event.Sequence) (state archive.State, needed, found bool, err error)
	// Unpack reads the states of a page; none if a node did not make it.
	Unpack(ctx context.Context, le ports.LegalEntity, page ports.ArchivedStatePage) ([]archive.State, error)
	// Pages packs states for a segment.
	Pages(ctx context.Context, le ports.LegalEntity, segment event.Sequence, states []archive.State) ([]ports.ArchivedStatePage, error)
}

// Holds lists the legal holds of a tenant, also those that were lifted.
type Holds interface {
	AllHolds(ctx context.Context, tenantID string) ([]ports.LegalHold, error)
}

// Config is what an Archiver needs; all of it is required.
type Config struct {
	Log      Log
	Register interface {
		ports.ArchiveRegister
		ports.ArchivedStates
	}
	Payloads ports.Archiver
	Files    *Files
	Store    ports.ExportStore
	Entities interface {
		LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
	}
	States States
	Holds  Holds
	// StaysOnline reports whether plans read the data of events with one of the tags, however old they are.
	StaysOnline func(tags []string) bool
	Leases      ports.Leases
	Holder      string // of the leases: of this process, and no other
	// Append appends an event to its stream, which is at a version, and returns its sequence.
	Append func(ctx context.Context, le ports.LegalEntity, d event.Draft, at event.Version) (event.Sequence, error)
	Clock  ports.Clock
	Logger *slog.Logger
}

// Archiver moves payloads into the archive and back.
type Archiver struct{ Config }

// New makes an Archiver.
func New(c Config) *Archiver { return &Archiver{c} }

// Selection says what a run concerns.
type Selection struct {
	LegalEntities []ports.LegalEntity // none: all
	Before        time.Time           // only what was recorded before; zero: DefaultBefore
}

// DefaultBefore is the beginning of the first calendar year that stays: the last two years stay wholly, and years are
// archived whole.
func DefaultBefore(now time.Time) time.Time {
	return time.Date(now.UTC().Year()-onlineYears, time.January, 1, 0, 0, 0, 0, time.UTC)
}

// before is the moment before which a selection takes. Fault archive.too_young.
func (a *Archiver) before(s Selection) (time.Time, error) {
	now := a.Clock.Now()
	if s.Before.IsZero() {
		return DefaultBefore(now), nil
	}
	if s.Before.After(now.AddDate(-onlineYears, 0, 0)) {
		return time.Time{}, fault.New(fault.FailedPrecondition, archive.CodeTooYoung, "payloads of the last two years stay in the database; name a day before %s", now.AddDate(-onlineYears, 0, 1).Format(time.DateOnly))
	}
	return s.Before, nil
}

// entitiesOf are the legal entities of a selection. Administrative logs are not archived.
func (a *Archiver) entitiesOf(ctx context.Context, s Selection) ([]ports.LegalEntity, error) {
	if len(s.LegalEntities) > 0 {
		return s.LegalEntities, nil
	}
	all, err := a.Entities.LegalEntities(ctx, "")
	return slices.DeleteFunc(all, func(le ports.LegalEntity) bool { return le.IsAdministrative() }), err
}

// segmentPage is how many segments are listed at a time.
const segmentPage = 1000

// segments lists the segments of a partition in order.
func (a *Archiver) segments(ctx context.Context, p event.PartitionID) iter.Seq2[ports.ArchivedSegment, error] {
	return func(yield func(ports.ArchivedSegment, error) bool) {
		for after := event.Sequence(0); ; {
			page, err := a.Register.Segments(ctx, p, after, segmentPage)
			if err != nil {
				yield(ports.ArchivedSegment{}, err)
				return
			}
			for _, s := range page {
				if !yield(s, nil) {
					return
				}
				after = s.First
			}
			if len(page) < segmentPage {
				return
			}
		}
	}
}

// gap is a range of sequences, last included.
type gap struct{ first, last event.Sequence }

// gaps are the ranges up to a sequence that no segment has.
func (a *Archiver) gaps(ctx context.Context, p event.PartitionID, through event.Sequence) (gaps []gap, err error) {
	next := event.Sequence(1)
	for s, err := range a.segments(ctx, p) {
		if err != nil {
			return nil, err
		}
		if s.First > through {
			break
		}
		if s.First > next {
			gaps = append(gaps, gap{next, s.First - 1})
		}
		next = s.Last + 1
	}
	if next <= through {
		gaps = append(gaps, gap{next, through})
	}
	return gaps, nil
}

// openRedactions are the states of redactions that have still to read or to prove their payload.
var openRedactions = []shredding.RedactionState{
	shredding.RedactionPreviewed, shredding.RedactionApproved, shredding.RedactionRedacted, shredding.RedactionAnnounced, shredding.RedactionRebuilt,
}

// maxRedactions bounds the open redactions of a tenant.
const maxRedactions = 10_000

// heldSubjects are those of the legal holds that are in force in a legal entity.
func (a *Archiver) heldSubjects(ctx context.Context, le ports.LegalEntity) (map[string]bool, error) {
	holds, err := a.Holds.AllHolds(ctx, le.TenantID)
	if err != nil {
		return nil, err
	}
	subjects, today := map[string]bool{}, event.DateOf(a.Clock.Now().UTC())
	for _, h := range holds {
		inForce := h.ReleasedAt.IsZero() && (h.Until == nil || *h.Until >= today)
		if inForce && (h.Partition == 0 || h.Partition == le.Partition) {
			subjects[string(h.Subject)] = true
		}
	}
	return subjects, nil
}

// staying finds the events of a legal entity up to a sequence that stay because of a hold or an open redaction.
func (a *Archiver) staying(ctx context.Context, le ports.LegalEntity, subjects map[string]bool, through event.Sequence) (held, redacted map[event.Sequence]bool, err error) {
	held, redacted = map[event.Sequence]bool{}, map[event.Sequence]bool{}
	requests, err := a.Log.RedactionRequests(ctx, le.TenantID, openRedactions, maxRedactions)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range requests {
		if r.Partition == le.Partition {
			redacted[r.Sequence] = true
		}
	}
	if len(subjects) == 0 {
		return held, redacted, nil
	}
	for row, err := range a.Log.PersonalRows(ctx, le.Partition, through) {
		if err != nil {
			return nil, nil, err
		}
		if subjects[row.Subject] {
			held[row.Sequence] = true
		}
	}
	return held, redacted, nil
}
