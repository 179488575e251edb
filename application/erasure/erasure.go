package erasure

import (
	"context"
	"log/slog"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/requests"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Config is what Service and Worker need. A field is required unless its comment says
// otherwise; Service needs no Announcer, Opener, Chains, Notes and Gate.
type Config struct {
	Register      ports.ErasureRegister
	Records       ports.PersonalRecords
	Intents       ports.IntentReader
	Streams       Streams
	LegalEntities ports.LegalEntities
	Types         Types
	Copies        Copies
	Index         Index // nil: persons are not searched for
	Journal       ports.AdministrativeLog
	Announcer     Announcer
	Opener        module.Opener
	Chains        Chains
	Notes         ports.NoteSigner
	Exports       ports.ExportStore
	Gate          Check
	Clock         ports.Clock
	IDs           ports.IDSource
	Logger        *slog.Logger
	Observer      Observer      // nil: none
	Poll          time.Duration // how often a worker looks for requests; positive

	// Certificates promise from when backups are unreadable. KeyDeletion is the time from
	// scheduling the deletion of a KEK to its deletion; positive. If RotatedByHand is set, no
	// job rotates KEKs, so certificates promise no time.
	KeyDeletion   time.Duration
	RotatedByHand bool
}

// Streams reads one stream of a partition. ports.EventReader has it.
type Streams interface {
	EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error)
}

// Types lists the registered event types. ports.EventTypes has it.
type Types interface {
	EventTypes(ctx context.Context, tenantID string) (types []eventtype.Registration, generation int64, err error)
}

// Copies are the sealed copies of personal values in read models. projections.Targets
// implements it.
type Copies interface {
	// HoldersOfCopies names the projections that keep copies.
	HoldersOfCopies() []string
	// CountCopies counts the rows of a projection, in all its versions, that hold sealed
	// copies of a person in a partition.
	CountCopies(ctx context.Context, projection string, p event.PartitionID, s shredding.Subject) (int64, error)
	// Forget recomputes those rows from the log, so that the person's values read
	// "[REDACTED]". Every version must have passed the sequence. It may be repeated.
	// Faults: projection.target_behind while a version has not passed the sequence,
	// projection.other_code while a version that another release built holds copies.
	Forget(ctx context.Context, projection string, p event.PartitionID, s shredding.Subject, passed event.Sequence) error
}

// Index is the index by which persons are found: ports.BlindIndex.
type Index interface {
	// ForgetSubject deletes what a person is found by under key classes, once the index has read
	// the sequence; blind_index.behind before.
	ForgetSubject(ctx context.Context, p event.PartitionID, s shredding.Subject, classes []shredding.KeyClass, passed event.Sequence) error
	CountBlindIndex(ctx context.Context, p event.PartitionID, s shredding.Subject, classes []shredding.KeyClass) (int64, error)
}

// Announcer appends one event to a log.
type Announcer = ports.Announcer

// Announcement is the event of an erasure in the log of one partition.
type Announcement = ports.Announcement

// Chains verifies logs.
type Chains = ports.ChainVerifier

// ChainVerdict is the result of verifying a partition.
type ChainVerdict = ports.ChainVerdict

// Check is a condition of a step, such as Gate.
type Check interface {
	// Check returns an error while the condition does not hold.
	Check(ctx context.Context) error
}

// Observer counts erasures. It must not block.
type Observer interface {
	// ErasureFailed reports a failed attempt at the step that follows a state.
	ErasureFailed(state string)
	// ErasureRequests reports the requests that have not ended, and when the most urgent
	// of them is due (zero without any).
	ErasureRequests(byState map[string]int, oldestDue time.Time)
}

// kind names the requests of this package.
const kind requests.Kind = "erasure"

// Names in the export store.
const (
	receiptFolder     = "receipts/"
	certificateFolder = "certificates/"
)

// complete returns the configuration with an observer. It refuses periods that are not positive.
func (c Config) complete() (Config, error) {
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	return c, fault.RequirePositive("erasure.Config", struct{ Poll, KeyDeletion time.Duration }{c.Poll, c.KeyDeletion})
}

func (c Config) now() time.Time { return event.Micros(c.Clock.Now()) }

type noObserver struct{}

func (noObserver) ErasureFailed(string)                      {}
func (noObserver) ErasureRequests(map[string]int, time.Time) {}
