package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Store reads the log and the rows that verification compares with it.
type Store interface {
	ports.ChainReader
	ports.ChainAudit
	ports.IntentAudit
	ports.AccessReader
	ports.PaperAudit
	ports.LegalEntities
	ports.Installations
	ports.FormerDecisions
	// RegistryRecord reads one registry of event types: ports.RegistryAudit.
	RegistryRecord(ctx context.Context, tenantID string) (ports.RegistryRecord, error)
	// EventTypeNumbers returns the numbers of the types that have one.
	EventTypeNumbers(ctx context.Context, names []string) (map[string]ports.EventTypeName, error)
	Head(ctx context.Context, p event.PartitionID) (ports.Head, error)
	ports.ArchivedSegments
	ports.DeadLetters
	// ListProjections lists the versions of all projections.
	ListProjections(ctx context.Context) ([]projection.Projection, error)
	// Subscriptions and WebhookEndpoints list the rows of a tenant.
	Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error)
	WebhookEndpoints(ctx context.Context, tenantID string) ([]ports.WebhookEndpoint, error)
}

// Progress is called with the number of events checked, 0 at the start of a log, and their total.
type Progress func(legalEntity string, done, total uint64)

// Option changes a run.
type Option func(*run)

// Against compares with heads that were exported earlier. The chain of each selected legal
// entity, and the registry's, must have that checksum at that sequence.
func Against(heads Heads) Option {
	return func(r *run) { r.reference = newReference(heads) }
}

// run holds the settings of a run over legal entities.
type run struct {
	logName    string
	deployment uint16
	take       func(*EntityReport) error             // nil: the reports are returned
	reference  *reference                            // nil: none
	progress   Progress                              // may be nil
	keyStore   KeyStore                              // nil: not compared
	dataKeys   ports.DataKeys                        // nil: keys of persons are not opened
	destroyed  map[string]bool                       // the keys that receipts name, by receiptLine; nil: not read yet
	policies   string                                // digest of the program's own; "": not reported
	types      map[string]keyTypes                   // by tenant
	bound      map[string]map[event.PartitionID]bool // by tenant, see hasBoundAllIntents
	settle     int                                   // how often what differs is compared again, a second apart
}

// Settle compares again, up to a number of times and a second apart, where a row and its event
// differ that a server may be writing.
func Settle(times int) Option {
	return func(r *run) { r.settle = times }
}

// Each calls take with each report as soon as it is made, in place of returning them. An error of
// it ends the run.
func Each(take func(*EntityReport) error) Option {
	return func(r *run) { r.take = take }
}

// KeyStore reads the rows of the key store that are compared with administrative logs.
type KeyStore interface {
	ports.KeyStoreAudit
	// SubjectKeys returns keys of persons: ports.SubjectKeys.
	SubjectKeys(ctx context.Context, ids []ports.SubjectKeyID) ([]ports.SubjectKey, error)
	// KEKs lists a tenant's KEKs by epoch.
	KEKs(ctx context.Context, tenantID string) ([]ports.KEK, error)
}

// WithKeyStore compares the key store with the administrative logs too.
func WithKeyStore(s KeyStore) Option {
	return func(r *run) { r.keyStore = s }
}

// OpenKeys opens every key of a person that the key store has, and compares it with its
// fingerprint and with a value that it sealed. The key service is called once for each key.
// It has no effect without WithKeyStore.
func OpenKeys(k ports.DataKeys) Option {
	return func(r *run) { r.dataKeys = k }
}

// DecidesBy reports the policies that were recorded last, and whether they are those of the
// program, which has the digest.
func DecidesBy(digest string) Option {
	return func(r *run) { r.policies = digest }
}

// Run verifies the named legal entities of a tenant, all of them if none is named, one after
// the other. It keeps in memory a few pages of events, and at most maxSuspects events that a
// redaction must explain. What grows with a log is small beside it: some sums for each blockEvents
// events, and what the log says of requests, redactions and erasures, without their payloads. An
// error means that the run could not finish; the reports hold the findings until then.
func Run(ctx context.Context, store Store, tenantID string, codes []string, progress Progress, options ...Option) ([]EntityReport, error) {
	installation, err := store.Installation(ctx)
	if err != nil {
		return nil, err
	}
	r := run{logName: installation.LogName, deployment: installation.Deployment, progress: progress, types: map[string]keyTypes{}, bound: map[string]map[event.PartitionID]bool{}}
	for _, o := range options {
		o(&r)
	}
	entities, err := store.Partitions(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	selected, err := choose(entities, codes, r.reference.hasHeadOf)
	if err != nil {
		return nil, err
	}
	missing := r.reference.missingEntities(entities, tenantID, codes)
	if tenantID == "" && len(codes) == 0 {
		unlisted, err := store.UnlistedPartitions(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range unlisted {
			report := newReport(ports.LegalEntity{Partition: p})
			report.add(Finding{Kind: LegalEntityMismatch, Detail: fmt.Sprintf("there is a head, an event or a payload of partition %d, and no legal entity has it", p)})
			missing = append(missing, report)
		}
	}
	var reports []EntityReport
	if r.take == nil {
		r.take = func(report *EntityReport) error {
			reports = append(reports, *report)
			return nil
		}
	}
	for i := range missing {
		if err := r.take(&missing[i]); err != nil {
			return reports, err
		}
	}
	for _, le := range selected {
		report, err := r.verify(ctx, store, le)
		if err = errors.Join(r.take(&report), err); err != nil {
			return reports, fmt.Errorf("legal entity %s: %w", le.Code, err)
		}
	}
	return reports, nil
}

// choose selects legal entities by code. It skips a code that only the exported heads have,
// which missingEntities reports.
func choose(all []ports.LegalEntity, codes []string, hasHead func(code string) bool) ([]ports.LegalEntity, error) {
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
		if !found && !hasHead(code) {
			return nil, fmt.Errorf("there is no legal entity %q in this log; name one that exists", code)
		}
	}
	return out, nil
}

// deploymentBits is how many bits of a partition id come after the deployment's.
const deploymentBits = 19

// verify checks one partition of a store.
func (r *run) verify(ctx context.Context, store Store, le ports.LegalEntity) (EntityReport, error) {
	report := newReport(le)
	head, headErr := store.Head(ctx, le.Partition)
	switch fault.KindOf(headErr) {
	case fault.NotFound:
		report.add(Finding{Kind: LegalEntityMismatch, Detail: "the legal entity has no log: the row of its partition is missing, or it names another partition"})
		return report, nil
	case fault.Internal: // or none
	default:
		return report, headErr
	}
	if r.progress != nil {
		r.progress(le.Code, 0, uint64(head.Sequence))
	}
	known, err := store.Redactions(ctx, le.Partition)
	if err != nil {
		return report, err
	}
	if headErr != nil {
		head.Genesis = event.GenesisChecksum(r.logName, le.Partition) // Head could not return the stored one
	}
	c := newChain(r, &report, le, head.Genesis)
	c.head = head
	c.redactions.init(known)
	types, err := r.keyTypesOf(ctx, store, le.TenantID)
	if err != nil {
		return report, err
	}
	c.keys = newKeyRows(types, head.Sequence)
	if err := c.keys.readRequests(ctx, c, store); err != nil {
		return report, err
	}
	if c.keys.numbers.rows, err = store.NumberSeries(ctx, le.Partition); err != nil {
		return report, err
	}
	if err := r.walkAll(ctx, store, c); err != nil {
		c.abort()
		return report, err
	}
	if uint16(le.Partition>>deploymentBits) != r.deployment {
		c.add(LegalEntityMismatch, 0, "the partition is of another deployment than the installation")
	}
	if err := c.checkReaders(ctx, store); err != nil {
		c.abort()
		return report, err
	}
	if headErr != nil {
		c.add(EventUnreadable, report.Head, "the last event holds a value that cannot be read")
	}
	if report.Head < head.Sequence {
		c.add(SequenceGap, report.Head+1, fmt.Sprintf("the log ends at %d, but its head was %d when the run began", report.Head, head.Sequence))
	}
	if err := r.checkPersonalKeys(ctx, store, c); err != nil {
		c.abort()
		return report, err
	}
	for _, comparison := range c.comparisons {
		if err := comparison.compare(ctx, c, store); err != nil {
			c.abort()
			return report, err
		}
	}
	if err := c.checkSegments(ctx, store); err != nil {
		c.abort()
		return report, err
	}
	c.finish()
	return report, nil
}

// checkReaders finds readers beyond the end, and deliveries of subscriptions that contradict each
// other. A reader that is too far on within the log has skipped events: of a projection this shows
// when its rows are compared with those of a rebuild, to consumers when they compare what they got.
func (c *chain) checkReaders(ctx context.Context, store Store) error {
	readers, err := store.Readers(ctx, c.entity.Partition)
	if err != nil {
		return err
	}
	for _, reader := range readers {
		if reader.Sequence <= c.report.Head {
			continue
		}
		head, err := store.Head(ctx, c.entity.Partition) // events may have been appended since
		if err != nil {
			return err
		}
		if reader.Sequence > head.Sequence {
			c.add(CheckpointMismatch, c.report.Head+1, fmt.Sprintf("%s has read through %d, and the log ends at %d", reader.Name, reader.Sequence, head.Sequence))
		}
	}
	damaged, err := store.DeliveryDamage(ctx, c.entity.Partition, MaxFindings)
	for _, d := range damaged {
		c.add(SubscriptionMismatch, d.Sequence, fmt.Sprintf("the subscription %s %s", d.Subscription, d.Damage))
	}
	return err
}

// walkAll checks all events, the rows of streams and of persons, and the number of events.
func (r *run) walkAll(ctx context.Context, store Store, c *chain) error {
	// The first error ends both goroutines: a walk may take hours.
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var rows streamRows
	compared := make(chan struct{})
	go func() {
		defer close(compared)
		var err error
		if rows, err = readStreamRows(within, store, c.entity.Partition, c.head.Sequence); err == nil {
			err = c.keys.readStored(within, store, c.entity.Partition)
		}
		if err != nil {
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
	for _, f := range rows.Findings {
		c.report.add(f)
	}
	c.report.Suppressed += rows.Suppressed
	if rows.begun != c.begun || len(rows.Findings) > 0 {
		if err := c.findMissingRows(ctx, store); err != nil {
			return err
		}
		if c.report.Sound() && c.report.Head >= c.head.Sequence { // no finding explains the difference
			c.add(StreamMismatch, 0, fmt.Sprintf("%d events begin a stream, but there are rows of %d streams", c.begun, rows.begun))
		}
	}
	if err := c.keys.finish(ctx, c, store); err != nil {
		return err
	}
	if err := r.checkIntentRows(ctx, store, c); err != nil {
		return err
	}
	if err := c.checkExtraPayloads(ctx, store); err != nil {
		return err
	}
	count, err := store.CountEvents(ctx, c.entity.Partition, c.report.Head)
	if err != nil {
		return err
	}
	if count != c.report.Events {
		c.add(HiddenEvents, 0, fmt.Sprintf("there are %d events up to the last one, but reading them in order returned %d", count, c.report.Events))
	}
	return nil
}

// checkExtraPayloads finds payloads that no event has. Readers never see them, but an append
// cannot insert the payload of a sequence that has one, so one after the last event blocks the
// partition. Only the sequences outside those of the events need a query: up to the last event, a
// payload has no event only where an event is missing, which is a finding already. Payloads that
// are absent are found with their events.
func (c *chain) checkExtraPayloads(ctx context.Context, store Store) error {
	extra, err := store.ExtraPayloads(ctx, c.entity.Partition, MaxFindings)
	for _, n := range extra {
		place := n
		if int64(n) < 1 { // no event is there to be named
			place = 0
		}
		c.add(PayloadExtra, place, fmt.Sprintf("a payload is stored at sequence %d, and no event is; an append cannot write one there", int64(n)))
	}
	return err
}

// walkEvents checks the events and the rows about persons.
func (r *run) walkEvents(ctx context.Context, store Store, c *chain) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows := newPersonalRows(ctx, store, c.entity.Partition, c.head.Sequence)
	defer rows.stop()
	if err := r.walk(ctx, store, c, rows); err != nil {
		return err
	}
	// A redaction that runs at the same time stores its record first and appends its event
	// afterwards. If a record, event or payload lacks its counterpart, read the records again
	// and the events that were appended since.
	if c.redactions.hasUnexplained() {
		late, err := store.Redactions(ctx, c.entity.Partition)
		if err != nil {
			return err
		}
		c.redactions.setRecords(late)
		if err := r.walk(ctx, store, c, rows); err != nil {
			return err
		}
	}
	rest, err := rows.rowsOf(math.MaxInt64, c.addExtraRow)
	for _, row := range rest {
		c.addExtraRow(row)
	}
	return err
}

// walk checks the events after the last one that was checked.
func (r *run) walk(ctx context.Context, store Store, c *chain, rows *personalRows) error {
	for p := range readAhead(ctx, store, c.entity.Partition, c.report.Head) {
		for _, n := range p.unreadable {
			c.unreadable(n)
		}
		for i := range p.events {
			personal, err := rows.rowsOf(p.events[i].Sequence, c.addExtraRow)
			if err != nil {
				return err
			}
			c.check(&p.events[i], personal, p.events[i].Sequence <= c.head.Sequence)
		}
		if err := c.checkStreams(ctx, store, p.events); err != nil {
			return err
		}
		if err := c.checkIntents(ctx, store, p.events); err != nil {
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

// personalRows merges the rows about persons, which the store streams by sequence, with the
// events.
type personalRows struct {
	next func() (ports.PersonalRow, error, bool)
	stop func()
	row  ports.PersonalRow // the next one if hasRow
	err  error

	hasRow bool
}

func newPersonalRows(ctx context.Context, store ports.ChainAudit, p event.PartitionID, until event.Sequence) *personalRows {
	r := &personalRows{}
	r.next, r.stop = iter.Pull2(store.PersonalRows(ctx, p, until))
	r.advance()
	return r
}

func (r *personalRows) advance() {
	r.row, r.err, r.hasRow = r.next()
	r.hasRow = r.hasRow && r.err == nil
}

// rowsOf returns the rows of one event. It calls extra with the rows of earlier sequences,
// which belong to no event.
func (r *personalRows) rowsOf(n event.Sequence, extra func(ports.PersonalRow)) (rows []ports.PersonalRow, err error) {
	for ; r.hasRow && int64(r.row.Sequence) <= int64(n); r.advance() {
		if r.row.Sequence == n {
			rows = append(rows, r.row)
		} else {
			extra(r.row)
		}
	}
	return rows, r.err
}

// addExtraRow reports a row that belongs to no event.
func (c *chain) addExtraRow(row ports.PersonalRow) {
	c.add(PersonalRowExtra, row.Sequence, "a row names a person for an event that does not exist")
}
